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
from fedfisher_core.client.features import Features
from fedfisher_core.client.past import NO_PAST, Exchange, Past
from fedfisher_core.models.spec import Parameters, parameters_of
from fedfisher_core.registry import Registry, import_submodules
from fedfisher_core.settings import ObjectiveChoice, TrainSettings
from fedfisher_core.signatures import settings_of

Losses = Callable[[Tensor, Tensor], Tensor]
"""Loss of each example, shape (batch,), of outputs, shape (batch, classes), and labels, shape (batch,)."""

RESERVED = tuple(ObjectiveChoice.model_fields)
"""Keys beside an objective's own settings, which an objective must not use."""


class Knowledge(StrEnum):
    """What an objective may read beside outputs and labels of a batch."""

    LABEL_COUNTS = "the client's label counts"
    WEIGHTS = "the weights"
    FEATURES = "the features that the last layer reads"
    PAST = "what earlier rounds left"


@dataclass(frozen=True)
class Known:
    """What a client knows beside a batch: no more than its objective declares.

    Args:
        counts: examples of each label, int64, shape (classes,); None where they are not declared.
        moving: the network's learnt weights by name, as they are now; None where they are not declared.
        starting: the weights that training started from, by name; None where they are not declared.
        watched: features of the batch; None where they are not declared.
        earlier: what earlier rounds left; None where it is not declared.
    """

    counts: Tensor | None = None
    moving: dict[str, nn.Parameter] | None = None
    starting: Parameters | None = None
    watched: Features | None = None
    earlier: Past | None = None

    @property
    def label_counts(self) -> Tensor:
        """Examples of each label that the client holds, int64, shape (classes,).

        Raises:
            RuntimeError: the objective does not declare that it reads them.
        """
        return _declared(self.counts, Knowledge.LABEL_COUNTS)

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        """The network's learnt weights by name, as they are now; gradients flow to them.

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

    @property
    def features(self) -> Features:
        """Features of the batch, under the network's weights and others.

        Raises:
            RuntimeError: the objective does not declare that it reads them.
        """
        return _declared(self.watched, Knowledge.FEATURES)

    @property
    def past(self) -> Past:
        """What earlier rounds left to the client.

        Raises:
            RuntimeError: the objective does not declare that it reads it.
        """
        return _declared(self.earlier, Knowledge.PAST)


@dataclass(frozen=True)
class Objective:
    """What a client minimises: the mean of a loss over its examples.

    Args:
        name: its name in the settings.
        function: takes outputs, labels and `Known`, and gives the loss of each example of a batch.
        reads: what it reads of `Known`.
        reference: address of the paper that it follows.
        settings: the function's keyword arguments as a model.
        exchange: how it speaks to the server; None where it does not.
        require: refuses local training that it can't go with, by an InputError; None where it goes with any.
    """

    name: str
    function: Callable[..., Tensor]
    reads: tuple[Knowledge, ...]
    reference: str
    settings: type[BaseModel]
    exchange: Exchange | None = None
    require: Callable[[TrainSettings], None] | None = None

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def known(self, network: nn.Module, labels: Tensor, classes: int, past: Past = NO_PAST) -> Known:
        """Collect what it reads.

        Args:
            network: before training.
            labels: of all of the client's examples.
            classes: number of labels.
            past: what earlier rounds left.

        Returns:
            What the client knows; the weights and features follow the network.
        """
        reads_weights = Knowledge.WEIGHTS in self.reads
        return Known(
            counts=torch.bincount(labels, minlength=classes) if Knowledge.LABEL_COUNTS in self.reads else None,
            moving={name: one for name, one in network.named_parameters() if one.requires_grad}
            if reads_weights
            else None,
            starting=parameters_of(network) if reads_weights else None,
            watched=Features(network) if Knowledge.FEATURES in self.reads else None,
            earlier=past if Knowledge.PAST in self.reads else None,
        )


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
    name: str,
    *,
    reference: str,
    reads: tuple[Knowledge, ...] = (),
    exchange: Exchange | None = None,
    require: Callable[[TrainSettings], None] | None = None,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a local objective; its keyword arguments with their types and defaults become its settings.

    Args:
        name: its name in the settings.
        reference: address of the paper that it follows.
        reads: what it reads of `Known`; it sees nothing else.
        exchange: how it speaks to the server over rounds, where it does.
        require: refuses local training that it can't go with, by an InputError; None where it goes with any.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the name is taken or a keyword
        argument has no type or no default.
    """

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        settings = settings_of(function, owner="objective", name=name, reserved=RESERVED)
        objectives.add(name, Objective(name, function, reads, reference, settings, exchange, require))
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
