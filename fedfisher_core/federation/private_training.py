"""Training one client, and computing what it releases, with differential privacy."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.past import Past
from fedfisher_core.client.training import Trained
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.seeds import Stream, torch_generator_for
from fedfisher_core.engine.store import Artifact, read_document, understood
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.partition import describe_view, digest_of_held
from fedfisher_core.federation.privacy import Budget
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.privacy.local import PrivateLocal
from fedfisher_core.privacy.training import train_privately


@dataclass(frozen=True)
class TrainPrivately(TrainClient):
    """Train one client by DP-SGD."""

    budget: Budget

    def private(self) -> dict[str, Any]:
        """See `TrainClient.private`."""
        return self.budget.described()

    def chance(self, inputs: TrainingInputs[Artifact]) -> torch.Generator:
        """See `TrainClient.chance`; no two trainings draw the same noise, since their difference would cancel it."""
        use = {
            "settings": {**self.chosen, **describe_view(inputs.partition, self.client)},
            "inputs": {
                "data": inputs.data.digest,
                "indices": digest_of_held(inputs.partition, self.client),
                "start": inputs.start.digest,
                **{f"round {round_number}": before.digest for round_number, before in inputs.before.items()},
            },
        }
        return torch_generator_for(use, self.federation.setting.seed, Stream.CLIENT, self.branch)

    def train(
        self, network: nn.Module, examples: Examples, generator: torch.Generator, past: Past
    ) -> tuple[Trained, dict[str, Any]]:
        """See `TrainClient.train`; the document records the noise."""
        noise = self.budget.noise(len(examples))
        trained = train_privately(
            network,
            examples,
            self.budget.train,
            noise_multiplier=noise.training,
            gradient_clip=self.budget.privacy.gradient_clip,
            generator=generator,
            losses=self.losses(network, examples, past),
            augmented=self.federation.dataset.augment,
        )
        return trained, {"noise": asdict(noise)}


@understood
def spent_by(artifact: Artifact) -> float:
    """Read the epsilon of all that a client releases, from what `TrainPrivately` made."""
    return read_document(artifact, "training.json")["noise"]["epsilon"]


@dataclass(frozen=True)
class ReleaseStatistic(ComputeStatistic):
    """Compute one statistic of one client, and release it by the Gaussian mechanism."""

    budget: Budget

    def private(self) -> dict[str, Any]:
        """See `ComputeStatistic.private`."""
        return self.budget.described() if self.statistic.mechanisms else {}

    def local(self, inputs: StatisticInputs[Artifact]) -> Local:
        """See `ComputeStatistic.local`."""
        plain = super().local(inputs)
        noise = self.budget.noise(len(plain.examples))
        # Under any other setting the trained client has another digest, so no two releases have the same noise.
        use = {"client": inputs.trained.digest, **self.budget.described()}
        generator = torch_generator_for(use, self.federation.setting.seed, Stream.FISHER, self.branch)
        shared = {**vars(plain), "generator": generator}
        return PrivateLocal(**shared, privacy=self.budget.privacy, noise=noise)
