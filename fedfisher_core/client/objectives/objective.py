"""What a local objective is: a decorated function of outputs, labels and what the client knows, and its settings."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.nn import functional

import fedfisher_core.client.objectives
from fedfisher_core.models.spec import Parameters, parameters_of
from fedfisher_core.registry import Registry, import_submodules
from fedfisher_core.settings import ObjectiveEntry
from fedfisher_core.signatures import settings_of

Losses = Callable[[Tensor, Tensor], Tensor]
"""Loss of each example, shape (batch,), of outputs, shape (batch, classes), and labels, shape (batch,)."""

RESERVED = tuple(ObjectiveEntry.model_fields)
"""Keys beside an objective's own settings, which an objective must not use."""


class Knowledge(StrEnum):
    """What an objective may read beside outputs and labels of a batch."""

    LABEL_COUNTS = "the client's label counts"
    WEIGHTS = "the weights"


@dataclass(frozen=True)
class Known:
    """What a client knows beside a batch: no more than its objective declares.

    Args:
        counts: examples of each label, int64, shape (classes,); None where they are not declared.
        moving: the network's weights by name, as they are now; None where they are not declared.
        starting: the weights that training started from, by name; None where they are not declared.
    """

    counts: Tensor | None = None
    moving: dict[str, nn.Parameter] | None = None
    starting: Parameters | None = None

    @property
    def label_counts(self) -> Tensor:
        """Examples of each label that the client holds, int64, shape (classes,).

        Raises:
            RuntimeError: the objective does not declare that it reads them.
        """
        return _declared(self.counts, Knowledge.LABEL_COUNTS)

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        """The network's weights by name, as they are now; gradients flow to them.

        Raises:
            RuntimeError: the objective does not declare that it reads them.
        """
        return _declared(self.moving, Knowledge.WEIGHTS)

    @property
    def start(self) -> Parameters:
        """The weights that training started from, by name.

        Raises:
            RuntimeError: the objective does not declare that it reads them.
        """
        return _declared(self.starting, Knowledge.WEIGHTS)


@dataclass(frozen=True)
class Objective:
    """What a client minimises: the mean of a loss over its examples.

    Args:
        name: its name in the settings.
        function: takes outputs, labels and `Known`, and gives the loss of each example of a batch.
        reads: what it reads of `Known`.
        reference: address of the paper that it follows.
        settings: the function's keyword arguments as a model.
    """

    name: str
    function: Callable[..., Tensor]
    reads: tuple[Knowledge, ...]
    reference: str
    settings: type[BaseModel]

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def known(self, network: nn.Module, labels: Tensor, classes: int) -> Known:
        """Collect what it reads.

        Args:
            network: before training.
            labels: of all of the client's examples.
            classes: number of labels.

        Returns:
            What the client knows; the weights follow the network.
        """
        counts = torch.bincount(labels, minlength=classes) if Knowledge.LABEL_COUNTS in self.reads else None
        if Knowledge.WEIGHTS not in self.reads:
            return Known(counts)
        return Known(counts, dict(network.named_parameters()), parameters_of(network))


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(f)_y of each example, in nats.

    Args:
        logits: f, shape (batch, classes).
        labels: y, int64, shape (batch,).

    Returns:
        The losses, shape (batch,).
    """
    return functional.cross_entropy(logits, labels, reduction="none")


def objective(
    name: str, *, reference: str, reads: tuple[Knowledge, ...] = ()
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a local objective; its keyword arguments with their types and defaults become its settings.

    Args:
        name: its name in the settings.
        reference: address of the paper that it follows.
        reads: what it reads of `Known`; it sees nothing else.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the name is taken or a keyword
        argument has no type or no default.
    """

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        settings = settings_of(function, owner="objective", name=name, reserved=RESERVED)
        objectives.add(name, Objective(name, function, reads, reference, settings))
        return function

    return register


def _declared(value: Any, what: Knowledge) -> Any:
    if value is None:
        raise RuntimeError(f"a local objective reads {what}, which it does not declare")
    return value


objectives: Registry[Objective] = Registry(
    noun="objective",
    group="fedfisher.objectives",
    builtin=lambda: import_submodules(fedfisher_core.client.objectives),
)
