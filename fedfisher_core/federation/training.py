"""Training one client."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from fedfisher_core.client.objectives.configured import ConfiguredObjective, configure_objective
from fedfisher_core.client.objectives.objective import Losses
from fedfisher_core.client.past import LocalTraining, Past
from fedfisher_core.client.training import Trained, count_steps, train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.costs import Stopwatch
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.seeds import Stream
from fedfisher_core.engine.store import Artifact, Content
from fedfisher_core.federation.federation import ClientJob
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.memory import Files, Memory
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.models.evaluation import mean_loss
from fedfisher_core.models.spec import Parameters, models


@dataclass(frozen=True)
class TrainClient(ClientJob[TrainingInputs[Artifact]]):
    """Train one client."""

    kind: ClassVar[str] = "clients"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "train"

    @property
    def objective(self) -> ConfiguredObjective:
        """What the client minimises."""
        return configure_objective(self.federation.setting.objective, self.federation.settings.train.objective)

    @property
    def described(self) -> dict[str, Any]:
        """How the client trains, as JSON has it."""
        train = self.federation.train.model_dump(mode="json", exclude_none=True, exclude={"objective", "together"})
        return {**train, **self.objective.described()}

    @property
    def memory(self) -> Memory:
        """What the objective keeps from round to round."""
        return Memory(self.objective, self.federation, self.round_number)

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        code = code_of(models.get(self.federation.spec.name), *self.objective.sources)
        return {"code": code, **self.chosen, **self.numerics.described()}

    @property
    def chosen(self) -> dict[str, Any]:
        """What a person chooses of the training."""
        federation = self.federation
        return {
            "model": {"name": federation.spec.name, "bias": federation.settings.model.bias},
            "train": self.described,
            "augment": federation.dataset.augment,
            "seed": federation.setting.seed,
            "client": self.client,
            **self.private(),
            **self.later,
        }

    def compute(self, inputs: TrainingInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training is not finite.
        """
        examples = examples_of(self.federation, inputs, self.client)
        start = load_start(inputs.start, self.federation.device)
        past = self.memory.of_client(inputs)
        watch = Stopwatch(self.federation.device.type)
        try:
            trained, extra = self.train(self.federation.spec.load(start), examples, self.chance(inputs), past)
            kept = self._kept(examples, start, trained, past)
        except DivergedClientError as error:
            raise DivergedClientError(f"{self.owner}: {error}") from error
        timings = watch.spent().timings()
        training = {"num_examples": len(examples), "epoch_losses": trained.epoch_losses, **extra}
        tensors = {TENSORS: trained.parameters, **kept}
        return Content(tensors=tensors, documents={"training.json": training}, timings=timings)

    def private(self) -> dict[str, Any]:
        """What the key has in addition; nothing without differential privacy."""
        return {}

    def chance(self, inputs: TrainingInputs[Artifact]) -> torch.Generator:
        """Build the generator of the training, on the CPU."""
        return self.generator(Stream.CLIENT)

    def train(
        self, network: nn.Module, examples: Examples, generator: torch.Generator, past: Past
    ) -> tuple[Trained, dict[str, Any]]:
        """Train a network in place.

        Args:
            network: holds the weights that the client starts from.
            generator: draws the order of the examples, and all else that the training leaves to chance.
            past: what the client kept of earlier rounds.

        Returns:
            The trained weights, and what else the document of the training records.
        """
        settings, augmented = self.federation.train, self.federation.dataset.augment
        losses = self.losses(network, examples, past)
        return train(network, examples, settings, generator=generator, losses=losses, augmented=augmented), {}

    def losses(self, network: nn.Module, examples: Examples, past: Past) -> Losses:
        """Make the loss of each example of a batch, which the client minimises.

        Args:
            network: holds the weights that the client starts from.
            past: what the client kept of earlier rounds.
        """
        return self.objective.losses(network, examples.labels, self.federation.dataset.classes, past)

    def _kept(self, examples: Examples, start: Parameters, trained: Trained, past: Past) -> Files:
        """Make what the objective keeps for the next round; most keep nothing."""
        if self.objective.objective.exchange is None:
            return {}
        settings, federation = self.federation.train, self.federation
        training = LocalTraining(
            start=start,
            trained={name: tensor.to(federation.device) for name, tensor in trained.parameters.items()},
            steps=count_steps(settings, len(examples)),
            learning_rate=settings.learning_rate,
            loss_of=lambda weights: mean_loss(federation.spec.load(weights).eval(), examples),
        )
        return self.memory.after_training(training, past)
