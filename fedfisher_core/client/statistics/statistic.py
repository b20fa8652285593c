"""The interface of all statistics that a client may upload, here and in other packages."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self

from torch import Size, Tensor

import fedfisher_core.client.statistics
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.registry import Registry, import_submodules

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local, Releasing
    from fedfisher_core.communication.wire.structure import Structure
    from fedfisher_core.fisher.blocks import Approximation
    from fedfisher_core.models.spec import ModelSpec


class ServerView(StrEnum):
    """What the server must see of a statistic."""

    SUM = "sum"
    EACH = "each"


class Statistic(ABC):
    """Named tensors that a client computes at its trained model and sends.

    A class without abstract methods is registered under its name, unless it is derived from `ABC` directly. It sets
    these class variables:

    * `name`: in settings and files; no two statistics share one.
    * `server_view`: whether the server needs each client's own or only the (weighted) sum over clients.
    * `structure`: the kind of its tensors, which decides how a budget can shorten them.
    * `approximation`: the form of the Fisher that it is made of, if any.
    * `trains_again`: whether it needs further networks, which the client trains by `local.further`.
    * `zero_filled`: whether zeros are what units would send that a client lacks, as where adapters differ in rank.
    * `mechanisms`: how many Gaussian mechanisms its release with differential privacy takes; 0 if it is computed from
      the trained weights alone, and None if it can't be released.

    Keyword-only arguments of `compute`, with their types and defaults, are its settings. `release` must take the same,
    and `shapes` may take some of them.
    """

    name: ClassVar[str]
    server_view: ClassVar[ServerView]
    structure: ClassVar["Structure"]
    approximation: ClassVar["Approximation | None"] = None
    trains_again: ClassVar[bool] = False
    zero_filled: ClassVar[bool] = False
    mechanisms: ClassVar[int | None] = None

    if TYPE_CHECKING:
        # With a real property, subclasses could have no field of this name.
        @property
        def tensors(self) -> Mapping[str, Tensor]:
            """Float32 by name, in the order in which they are sent."""

    def __init_subclass__(cls) -> None:
        """Register a class that can be computed, and check its class variables."""
        if ABC in cls.__bases__ or _is_abstract(cls):
            return
        for required in ("name", "server_view", "structure"):
            if not hasattr(cls, required):
                raise InputError(f"statistic {cls.__name__!r} lacks the class variable {required!r}")
        # An inherited release may not fit what the class computes.
        first = next(vars(base) for base in cls.__mro__ if vars(base).keys() & {"compute", "release"})
        if cls.mechanisms is not None and "release" not in first:
            raise InputError(
                f"statistic {cls.name!r} has mechanisms={cls.mechanisms}; allowed with a `compute` but no `release` "
                "of its own: None"
            )
        known = statistics.find(cls.name)
        # A class that is defined again, by a decorator or in a notebook, replaces its first version.
        if known is None or _origin(known) != _origin(cls):
            statistics.add(cls.name, cls, module=cls.__module__)
        else:
            statistics.replace(cls.name, cls, module=cls.__module__)

    @classmethod
    @abstractmethod
    def compute(cls, local: "Local") -> Self:
        """Compute the statistic, with its tensors on the network's device.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
        """

    @classmethod
    @abstractmethod
    def shapes(cls, spec: "ModelSpec") -> dict[str, Size]:
        """Give the tensors' shapes by name, in the order in which the tensors are sent.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
        """

    @classmethod
    @abstractmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild the statistic from the tensors of another instance, or from sums over several."""

    @classmethod
    def release(cls, local: "Releasing") -> Self:
        """Compute the statistic with differential privacy, so that anyone may see it.

        It is called only if `mechanisms` is not None.

        Args:
            local: the client after private training. Each mechanism must have the noise multiplier `local.multiplier`,
                and noise from `local.noise_generator`.

        Raises:
            InputError: the statistic can't be released.
        """
        raise InputError(f"statistic {cls.name!r} has no release with privacy")

    def require_finite(self) -> None:
        """Refuse to send a tensor that is not finite, by a DivergedClientError that names statistic and tensor."""
        for key, tensor in self.tensors.items():
            if not is_finite(tensor):
                raise DivergedClientError(f"statistic {self.name!r}: tensor {key!r} is not finite")


@dataclass(frozen=True)
class TensorStatistic(Statistic, ABC):
    """A statistic that holds nothing but its tensors.

    Args:
        tensors: float32 by name, in the order in which they are sent.
    """

    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Take the tensors."""
        return cls(dict(tensors))


def _is_abstract(cls: type[Statistic]) -> bool:
    """Whether a method is left to subclasses; Python sets `__abstractmethods__` only after `__init_subclass__`."""
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__abstractmethods__", ())}
    return any(
        getattr(getattr(cls, name, None), "__isabstractmethod__", False) for name in inherited | vars(cls).keys()
    )


def _origin(cls: type[Statistic]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


statistics: Registry[type[Statistic]] = Registry(
    noun="statistic", group="fedfisher.statistics", builtin=lambda: import_submodules(fedfisher_core.client.statistics)
)
