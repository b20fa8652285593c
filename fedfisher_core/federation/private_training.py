"""Training one client with differential privacy."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from fedfisher_core.client.past import Past
from fedfisher_core.client.training import Trained
from fedfisher_core.data.tensors import Examples
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.privacy import Budget
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.seeds import Stream, torch_generator_for
from fedfisher_core.store import Artifact, read_document


@dataclass(frozen=True)
class TrainPrivately(TrainClient):
    """Train one client by DP-SGD.

    Args:
        budget: of the client.
    """

    budget: Budget

    def private(self) -> dict[str, Any]:
        """See `TrainClient.private`."""
        return self.budget.described()

    def chance(self, inputs: TrainingInputs[Artifact]) -> torch.Generator:
        """See `TrainClient.chance`; no two trainings draw the same noise, which their difference would cancel."""
        step, where = self.step(inputs), self.numerics.described()
        settings = {name: value for name, value in step.settings.items() if name not in where}
        use = {"settings": settings, "inputs": dict(step.inputs)}
        return torch_generator_for(use, self.place.cell.seed, Stream.CLIENT, self.branch)

    def train(
        self, network: nn.Module, examples: Examples, generator: torch.Generator, past: Past
    ) -> tuple[Trained, dict[str, Any]]:
        """See `TrainClient.train`; the noise is noted."""
        noise = self.budget.noise(len(examples))
        trained = train_privately(
            network,
            examples,
            self.budget.train,
            noise_multiplier=noise.training,
            gradient_clip=self.budget.privacy.gradient_clip,
            generator=generator,
            losses=self.losses(network, examples, past),
            augmented=self.place.dataset.augment,
        )
        return trained, {"noise": asdict(noise)}


def spent_by(artifact: Artifact) -> float:
    """Read what a client's releases cost.

    Args:
        artifact: made by `TrainPrivately`.

    Returns:
        epsilon of all that it releases.
    """
    return read_document(artifact, "training.json")["noise"]["epsilon"]
