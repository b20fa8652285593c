"""What a server optimiser is: a decorated function of one tensor's change and moments, and its settings."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from torch import Tensor

import fedfisher_core.methods.server_optimisers
from fedfisher_core.engine.registry import Registry, import_submodules
from fedfisher_core.settings import Choice, TrainSettings
from fedfisher_core.settings.choices import settings_of

RESERVED = tuple(Choice.model_fields)
"""Keys next to an optimiser's own settings, which an optimiser must not use."""

Step = tuple[Tensor, Mapping[str, Tensor]]
"""What is added to a weight, and its moments for the next round."""


def _no_moments(settings: Any) -> dict[str, float]:
    return {}


@dataclass(frozen=True)
class ServerOptimiser:
    """How a server goes on from an aggregate.

    Args:
        function: takes a weight's change, aggregate less start, and its moments, and gives a `Step`.
        moments: from its settings, the first value of all entries of each moment, by the moment's name.
        reference: address of the paper that it follows.
        settings: the function's keyword arguments as a model.
        require: refuses local training that it can't work with, by an InputError, from the settings of the training and
            the number of examples of all clients together; None where any training will do.
    """

    name: str
    function: Callable[..., Step]
    moments: Callable[[Any], Mapping[str, float]]
    reference: str
    settings: type[BaseModel]
    require: Callable[[TrainSettings, int | None], None] | None = None

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


def server_optimiser(
    name: str,
    *,
    reference: str,
    moments: Callable[[Any], Mapping[str, float]] = _no_moments,
    require: Callable[[TrainSettings, int | None], None] | None = None,
) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Register a server optimiser; its keyword arguments with their types and defaults become its settings.

    The arguments are the fields of `ServerOptimiser`.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the name is taken or a keyword
        argument has no type or no default.
    """

    def register(function: Callable[..., Step]) -> Callable[..., Step]:
        settings = settings_of(function, owner="server optimiser", name=name, reserved=RESERVED)
        server_optimisers.add(name, ServerOptimiser(name, function, moments, reference, settings, require))
        return function

    return register


server_optimisers: Registry[ServerOptimiser] = Registry(
    noun="server optimiser",
    group="fedfisher.server_optimisers",
    builtin=lambda: import_submodules(fedfisher_core.methods.server_optimisers),
)
