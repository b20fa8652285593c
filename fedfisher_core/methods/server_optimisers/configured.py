"""Server optimisers with their settings chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server_optimisers.optimiser import RESERVED, ServerOptimiser, server_optimisers
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import AVERAGE, Choice, TrainSettings
from fedfisher_core.settings.choices import choose

Moments = Mapping[str, Parameters]
"""What an optimiser keeps between rounds: by the moment's name, a tensor for each weight."""


@dataclass(frozen=True)
class ConfiguredServerOptimiser:
    """A server optimiser with all of its settings chosen, defaults included."""

    optimiser: ServerOptimiser
    settings: BaseModel

    @property
    def is_average(self) -> bool:
        """Whether the aggregate itself is the next start."""
        return self.optimiser.name == AVERAGE

    def described(self) -> dict[str, Any]:
        """What belongs to the settings of a round, as JSON has it: nothing for the plain average."""
        if self.is_average:
            return {}
        return {"server_optimiser": {"name": self.optimiser.name, **self.settings.model_dump(mode="json")}}

    def begin(self, start: Parameters) -> dict[str, Parameters]:
        """Make the moments of the first round, shaped as the weights."""
        values = self.optimiser.moments(self.settings)
        return {
            moment: {name: torch.full_like(weight, value) for name, weight in start.items()}
            for moment, value in values.items()
        }

    def advance(
        self, start: Parameters, aggregate: Parameters, moments: Moments
    ) -> tuple[Parameters, dict[str, Parameters]]:
        """Go on from an aggregate.

        Args:
            start: the weights that the round started from.
            aggregate: the weights that a method made of the round's uploads.
            moments: of the round before, or those of `begin`.

        Returns:
            The weights that the next round starts from, and the moments.
        """
        weights: Parameters = {}
        kept: dict[str, Parameters] = {moment: {} for moment in moments}
        for name, weight in start.items():
            own = {moment: tensors[name] for moment, tensors in moments.items()}
            step, after = self.optimiser.function(aggregate[name] - weight, own, **vars(self.settings))
            weights[name] = weight + step
            for moment, tensor in after.items():
                kept[moment][name] = tensor
        return weights, kept

    def require(self, train: TrainSettings, examples: int | None) -> None:
        """Refuse, by an InputError, local training that the optimiser can't work with.

        Args:
            examples: of all clients together; None where they are not counted before the work.
        """
        if self.optimiser.require is not None:
            self.optimiser.require(train, examples)


def configure_server_optimiser(label: str, entries: Mapping[str, Choice]) -> ConfiguredServerOptimiser:
    """Choose the settings of the server optimiser `label` from the entries of `rounds.server_optimiser`.

    Raises:
        InputError: the optimiser or a setting is unknown, or a value is not allowed.
    """
    entry, key = entries[label], f"rounds.server_optimiser.{label}"
    try:
        found = server_optimisers.get(entry.name or label)
    except InputError as error:
        raise InputError(f"{key}: {error}") from error
    return ConfiguredServerOptimiser(found, choose(found.settings, entry.settings, key=key, besides=RESERVED))
