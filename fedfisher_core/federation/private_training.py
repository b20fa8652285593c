"""Clients under differential privacy: their budget, their training and what they release."""

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.objectives.objective import ConfiguredObjective, Knowledge, objectives
from fedfisher_core.client.round_state import Past
from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.training import Trained, count_steps
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, torch_generator_for
from fedfisher_core.engine.store import Artifact, read_document, understood
from fedfisher_core.federation.federation import TrainingInputs
from fedfisher_core.federation.partition import describe_view, digest_of_held
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.privacy.accountant import Noise, calibrate
from fedfisher_core.privacy.fishers import PrivateLocal, require_private, require_private_fisher
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.settings import FederationSettings, PrivacySettings, TrainSettings

# A client with so many examples needs the least noise. If it can't keep a budget, no client can.
_MANY_EXAMPLES = 10**6


@dataclass(frozen=True)
class Budget:
    """What a client may spend on all that it releases."""

    privacy: PrivacySettings
    train: TrainSettings
    statistics: tuple[ConfiguredStatistic, ...]

    def noise(self, num_examples: int) -> Noise:
        """Find the noise that keeps within the budget.

        Raises:
            InputError: no noise does.
        """
        mechanisms = sum(one.statistic.mechanisms or 0 for one in self.statistics)
        steps = count_steps(self.train, num_examples)
        return _calibrate(self.privacy, num_examples, self.train.batch_size, steps, mechanisms)

    def require_possible(self) -> None:
        """Check that a client with enough examples can keep within the budget.

        Raises:
            InputError: names the setting, its value and what is allowed.
        """
        self.noise(_MANY_EXAMPLES)

    def described(self) -> dict[str, Any]:
        """Describe what belongs to the key of everything that the client releases."""
        # Statistics that are computed from the weights alone cost nothing.
        releases = {one.statistic.name: one.described() for one in self.statistics if one.statistic.mechanisms}
        # The clip of a statistic that the client does not send changes nothing, not even the others' noise.
        unused = set() if "input_moments" in releases else {"input_moments_clip"}
        return {"privacy": {**self.privacy.model_dump(mode="json", exclude=unused), "releases": releases}}


@cache
def _calibrate(privacy: PrivacySettings, num_examples: int, batch_size: int, steps: int, releases: int) -> Noise:
    """Calibrate once for training, statistics and checks, as it takes about a second."""
    return calibrate(privacy, num_examples=num_examples, batch_size=batch_size, steps=steps, releases=releases)


def require_privacy(settings: FederationSettings, label: str, uploads: tuple[ConfiguredStatistic, ...]) -> None:
    """Check that a method's uploads can be released with differential privacy.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if settings.privacy is None:
        return
    require_private_fisher(settings.fisher)
    try:
        require_private(one.statistic for one in uploads)
    except InputError as error:
        raise InputError(f"method {label!r}: {error}") from error


def require_private_objective(label: str, configured: ConfiguredObjective) -> None:
    """Check that clients can minimise an objective with differential privacy.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    reads = configured.objective.reads
    if not reads:
        return
    reason = (
        f"reads {Knowledge.LABEL_COUNTS}, which no budget counts"
        if Knowledge.LABEL_COUNTS in reads
        else f"adds a gradient to those of the examples, as it reads {reads[0]}; DP-SGD clips gradients of examples"
    )
    able = ", ".join(name for name in objectives if not objectives.get(name).reads)
    raise InputError(f"train.objective={label!r} with privacy: {configured.objective.name!r} {reason}; allowed: {able}")


@dataclass(frozen=True)
class TrainPrivately(TrainClient):
    """Train one client by DP-SGD."""

    budget: Budget

    def private(self) -> dict[str, Any]:
        """See `TrainClient.private`."""
        return self.budget.described()

    def training_generator(self, inputs: TrainingInputs[Artifact]) -> torch.Generator:
        """See `TrainClient.training_generator`; the difference of two trainings with the same noise would cancel it."""
        use = {
            # Adapters that differ in alpha alone start from the same weights.
            "settings": {
                **self.chosen,
                **self.federation.spec.lora.described,
                **describe_view(inputs.partition, self.client),
            },
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
def epsilon_spent(artifact: Artifact) -> float:
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
