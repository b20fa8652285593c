"""What a client may upload: the interface of all statistics, here and in other packages."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self

from torch import Size, Tensor

import fedfisher_core.client
from fedfisher_core.errors import DivergedClientError, InputError
from fedfisher_core.finite import is_finite
from fedfisher_core.registry import Registry, import_submodules

if TYPE_CHECKING:
    # Whoever names the code that a result comes from follows imports: those that no statistic needs are not made.
    from fedfisher_core.client.local import Local, Releasing
    from fedfisher_core.fisher.blocks import Approximation
    from fedfisher_core.models.spec import ModelSpec
    from fedfisher_core.wire.structure import Structure


class ServerView(StrEnum):
    """What of a statistic the server must see."""

    SUM = "sum"
    EACH = "each"


class Statistic(ABC):
    """What a client computes at its trained model and sends, as named tensors.

    A class that leaves nothing abstract is registered under its name, unless it is derived from `ABC` directly. It
    says in class variables:

    * `name`: how it is called, in settings and files; no two statistics share one.
    * `server_view`: whether the server needs each client's own or only the (weighted) sum over clients.
    * `structure`: what its tensors are, which decides how a budget can shorten them.
    * `approximation`: which Fisher it is made of, if any.
    * `trains_again`: whether it is of further networks, which the client trains by `local.further`.
    * `mechanisms`: how many Gaussian mechanisms its release with differential privacy takes; 0 for what follows from
      the trained weights, and None for what can't be released.

    Keyword-only arguments of `compute`, with their types and defaults, are its settings. `shapes` is given those of
    them that it names, and `release` must take the same.
    """

    name: ClassVar[str]
    server_view: ClassVar[ServerView]
    structure: ClassVar["Structure"]
    approximation: ClassVar["Approximation | None"] = None
    trains_again: ClassVar[bool] = False
    mechanisms: ClassVar[int | None] = None

    if TYPE_CHECKING:
        # A real property would keep subclasses from having a field of this name.
        @property
        def tensors(self) -> Mapping[str, Tensor]:
            """Float32 by name, in the order in which they are sent."""

    def __init_subclass__(cls) -> None:
        """Register a class that can be computed, and make sure that it says what it must."""
        if ABC in cls.__bases__ or _is_abstract(cls):
            return
        for required in ("name", "server_view", "structure"):
            if not hasattr(cls, required):
                raise InputError(f"statistic {cls.__name__!r} lacks the class variable {required!r}")
        # A release that is inherited may know nothing of what the class computes.
        first = next(vars(base) for base in cls.__mro__ if vars(base).keys() & {"compute", "release"})
        if cls.mechanisms is not None and "release" not in first:
            raise InputError(
                f"statistic {cls.name!r} has mechanisms={cls.mechanisms}; allowed with a `compute` but no `release` "
                "of its own: None"
            )
        known = statistics.find(cls.name)
        # A class that is made again, by a decorator or by a cell of a notebook, takes its own place.
        if known is not None and _origin(known) != _origin(cls):
            raise InputError(
                f"two statistics are called {cls.name!r}: {'.'.join(_origin(known))} and {'.'.join(_origin(cls))}; "
                "allowed: a name of its own for each"
            )
        statistics.replace(cls.name, cls)

    @classmethod
    @abstractmethod
    def compute(cls, local: "Local") -> Self:
        """Compute the statistic.

        Args:
            local: the trained client.

        Returns:
            The statistic, its tensors on the network's device.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
        """

    @classmethod
    @abstractmethod
    def shapes(cls, spec: "ModelSpec") -> dict[str, Size]:
        """Name the tensors and their shapes.

        Args:
            spec: the network that clients train.

        Returns:
            Shapes by name, in the order in which the tensors are sent.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
        """

    @classmethod
    @abstractmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the statistic.

        Args:
            tensors: those of another instance, or sums of those of several, by name.

        Returns:
            The statistic.
        """

    @classmethod
    def release(cls, local: "Releasing") -> Self:
        """Compute the statistic with differential privacy; only called where `mechanisms` says how.

        Args:
            local: the client after private training. Each mechanism is to have the noise multiplier
                `local.multiplier`, and noise from `local.noise_generator`.

        Returns:
            The statistic, which may then be seen by anybody.

        Raises:
            InputError: the statistic can't be released.
        """
        raise InputError(f"statistic {cls.name!r} has no release with privacy")

    def require_finite(self) -> None:
        """Make sure that nothing leaves the client that is not a number.

        Raises:
            DivergedClientError: names the statistic and the tensor.
        """
        for key, tensor in self.tensors.items():
            if not is_finite(tensor):
                raise DivergedClientError(f"statistic {self.name!r}: tensor {key!r} is not finite")


@dataclass(frozen=True)
class TensorStatistic(Statistic, ABC):
    """A statistic that is its tensors.

    Args:
        tensors: float32 by name, in the order in which they are sent.
    """

    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Take the tensors."""
        return cls(dict(tensors))


def _is_abstract(cls: type[Statistic]) -> bool:
    """Whether something is left to subclasses; Python itself finds out after `__init_subclass__` only."""
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__abstractmethods__", ())}
    return any(
        getattr(getattr(cls, name, None), "__isabstractmethod__", False) for name in inherited | vars(cls).keys()
    )


def _origin(cls: type[Statistic]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


statistics: Registry[type[Statistic]] = Registry(
    noun="statistic", group="fedfisher.statistics", builtin=lambda: import_submodules(fedfisher_core.client)
)
