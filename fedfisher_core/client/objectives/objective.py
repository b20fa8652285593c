"""Local objectives: decorated functions of outputs, labels and what the client knows, with their settings."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.nn import functional

import fedfisher_core.client.objectives
from fedfisher_core.client.local import Features
from fedfisher_core.client.round_state import NO_PAST, Exchange, Past
from fedfisher_core.client.statistics.features import last_linear
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry, import_submodules
from fedfisher_core.models.spec import Parameters, parameters_of
from fedfisher_core.settings import PLAIN, Choice, ObjectiveChoice, TrainSettings
from fedfisher_core.settings.choices import choose, settings_of

Losses = Callable[[Tensor, Tensor], Tensor]
"""Takes outputs, shape (batch, classes), and labels, shape (batch,); gives the loss of each example, shape (batch,)."""

Views = Callable[[DatasetSpec, Tensor, torch.Generator], Tensor]
"""Takes a data set, a batch of its inputs and a generator on the CPU; gives views of the batch, one after another."""

RESERVED = tuple(ObjectiveChoice.model_fields)
"""Keys that stand next to an objective's settings, so that an objective must not use them."""


class Knowledge(StrEnum):
    """What an objective may read besides outputs and labels of a batch."""

    LABEL_COUNTS = "the client's label counts"
    WEIGHTS = "the weights"
    FEATURES = "the features that the last layer reads"
    HEAD = "the weights of the last layer"
    PAST = "what earlier rounds left"


@dataclass(frozen=True)
class Known:
    """What a client knows besides a batch.

    A field that its objective does not declare is None, and reading the field's property raises RuntimeError.

    Args:
        counts: examples of each label, int64, shape (classes,).
        moving: the network's current learnt weights.
        starting: the weights from which training started.
        watched: features of the batch.
        last: the last layer's current weights.
        earlier: what earlier rounds left.
    """

    counts: Tensor | None = None
    moving: dict[str, nn.Parameter] | None = None
    starting: Parameters | None = None
    watched: Features | None = None
    last: Tensor | None = None
    earlier: Past | None = None

    @property
    def label_counts(self) -> Tensor:
        """Examples of each label that the client holds, int64, shape (classes,)."""
        return _declared(self.counts, Knowledge.LABEL_COUNTS)

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        """The network's current learnt weights by name; gradients flow to them."""
        return _declared(self.moving, Knowledge.WEIGHTS)

    @property
    def start(self) -> Parameters:
        """The weights from which training started, by name."""
        return _declared(self.starting, Knowledge.WEIGHTS)

    @property
    def features(self) -> Features:
        """Features of the batch, under the network's weights and others."""
        return _declared(self.watched, Knowledge.FEATURES)

    @property
    def head(self) -> Tensor:
        """The last layer's current weights, shape (classes, features), without its bias; gradients flow to them."""
        return _declared(self.last, Knowledge.HEAD)

    @property
    def past(self) -> Past:
        """What earlier rounds left to the client."""
        return _declared(self.earlier, Knowledge.PAST)


@dataclass(frozen=True)
class Objective:
    """The loss whose mean over its examples a client minimises.

    Args:
        function: takes outputs f, shape (batch, classes), labels y, int64, shape (batch,), and `Known`; gives the loss
            of each example in nats, shape (batch,).
        reads: the parts of `Known` that it reads.
        exchange: what it exchanges with the server; None for nothing.
        require: raises InputError for local training that does not fit it; None if any does.
        views: makes those on which clients train in the place of images, with their labels; None for the images.
    """

    name: str
    function: Callable[..., Tensor]
    reads: tuple[Knowledge, ...]
    reference: str
    settings: type[BaseModel]
    exchange: Exchange | None = None
    require: Callable[[TrainSettings], None] | None = None
    views: Views | None = None

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def known(self, network: nn.Module, labels: Tensor, classes: int, past: Past = NO_PAST) -> Known:
        """Collect what it reads; weights and features change with the network.

        Args:
            network: before training.
            labels: of all of the client's examples.
        """
        reads_weights = Knowledge.WEIGHTS in self.reads
        return Known(
            counts=torch.bincount(labels, minlength=classes) if Knowledge.LABEL_COUNTS in self.reads else None,
            moving={name: one for name, one in network.named_parameters() if one.requires_grad}
            if reads_weights
            else None,
            starting=parameters_of(network) if reads_weights else None,
            watched=Features(network) if Knowledge.FEATURES in self.reads else None,
            last=last_linear(network)[1].weight if Knowledge.HEAD in self.reads else None,
            earlier=past if Knowledge.PAST in self.reads else None,
        )


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """-log softmax(f)_y of each example, in nats.

    Args:
        logits: f, shape (batch, classes).
        labels: y, int64, shape (batch,).
    """
    return functional.cross_entropy(logits, labels, reduction="none")


def objective(
    name: str,
    *,
    reference: str,
    reads: tuple[Knowledge, ...] = (),
    exchange: Exchange | None = None,
    require: Callable[[TrainSettings], None] | None = None,
    views: Views | None = None,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a local objective; its keyword arguments with their types and defaults become its settings.

    See `Objective` for the arguments.

    Returns:
        A decorator that leaves the function unchanged. It raises InputError if the name is taken, or if a keyword
        argument has no type or no default.
    """

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        settings = settings_of(function, owner="objective", name=name, reserved=RESERVED)
        objectives.add(name, Objective(name, function, reads, reference, settings, exchange, require, views))
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


@dataclass(frozen=True)
class ConfiguredObjective:
    """A local objective with its settings chosen, defaults included."""

    objective: Objective
    settings: BaseModel

    @property
    def sources(self) -> tuple[Callable[..., Any], ...]:
        """The functions whose code decides the result of a client's training."""
        exchange = self.objective.exchange
        spoken = () if exchange is None else (exchange.begin, exchange.close, exchange.update)
        seen = () if self.objective.views is None else (self.objective.views,)
        return (self.objective.function, *spoken, *seen)

    def losses(self, network: nn.Module, labels: Tensor, classes: int, past: Past = NO_PAST) -> Losses:
        """Make the loss of one client.

        Args:
            network: before training.
            labels: of all of the client's examples.
        """
        known = self.objective.known(network, labels, classes, past)
        return partial(_losses, self.objective, known, vars(self.settings))

    def described(self) -> dict[str, Any]:
        """What it adds to the settings of a client's training, as JSON: nothing for the plain one."""
        if self.objective.name == PLAIN:
            return {}
        return {"objective": {"name": self.objective.name, **self.settings.model_dump(mode="json")}}


def configure_objective(label: str, entries: Mapping[str, Choice]) -> ConfiguredObjective:
    """Choose the settings of an objective in `train.objective`; InputError if a name or a value is not allowed."""
    entry, key = entries[label], f"train.objective.{label}"
    try:
        found = objectives.get(entry.name or label)
    except InputError as error:
        raise InputError(f"{key}: {error}") from error
    return ConfiguredObjective(found, choose(found.settings, entry.settings, key=key, besides=RESERVED))


def _losses(objective: Objective, known: Any, chosen: dict[str, Any], logits: Tensor, labels: Tensor) -> Tensor:
    losses = objective.function(logits, labels, known, **chosen)
    # A mean would be taken for the loss of one example, and private training would clip the wrong gradient.
    if losses.shape != labels.shape:
        raise RuntimeError(
            f"objective {objective.name!r} returned shape {tuple(losses.shape)}; allowed: a loss of each of the "
            f"{len(labels)} examples"
        )
    return losses
