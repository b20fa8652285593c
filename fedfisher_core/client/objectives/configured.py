"""Local objectives with their settings chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel
from torch import Tensor, nn

from fedfisher_core.client.objectives.objective import RESERVED, Losses, Objective, objectives
from fedfisher_core.client.past import NO_PAST, Past
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import PLAIN, Choice
from fedfisher_core.settings.choices import choose


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
        return (self.objective.function, *spoken)

    def losses(self, network: nn.Module, labels: Tensor, classes: int, past: Past = NO_PAST) -> Losses:
        """Make the loss of one client.

        Args:
            network: before training.
            labels: of all of the client's examples.
            classes: number of labels.
        """
        known = self.objective.known(network, labels, classes, past)
        chosen = {name: getattr(self.settings, name) for name in type(self.settings).model_fields}
        return partial(_losses, self.objective, known, chosen)

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
