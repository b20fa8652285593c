"""Training one client."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedfisher_core.client.objectives.binding import BoundObjective, bind_objective
from fedfisher_core.client.objectives.objective import Losses
from fedfisher_core.client.past import LocalTraining, Past
from fedfisher_core.client.training import Trained, count_steps, train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.evaluation.predictions import mean_loss
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.memory import Files, Memory
from fedfisher_core.federation.partition import describe_view, digest_of_held, examples_of, held_by
from fedfisher_core.federation.place import ClientJob
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.seeds import Stream
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step


@dataclass(frozen=True)
class TrainClient(ClientJob[TrainingInputs[Artifact]]):
    """Train one client."""

    @property
    def objective(self) -> BoundObjective:
        """What the client minimises."""
        return bind_objective(self.place.cell.objective, self.place.settings.train.objective)

    @property
    def described(self) -> dict[str, Any]:
        """How the client trains, as JSON has it."""
        train = self.place.train.model_dump(mode="json", exclude_none=True, exclude={"objective", "together"})
        return {**train, **self.objective.described()}

    @property
    def memory(self) -> Memory:
        """What the objective leaves from round to round."""
        return Memory(self.objective, self.place, self.turn)

    def size(self, inputs: TrainingInputs[Artifact]) -> float:
        """See `Job.size`."""
        train, examples = self.place.train, len(held_by(inputs.partition, self.client))
        return float(train.steps * train.batch_size if train.steps else (train.epochs or 1) * examples)

    def step(self, inputs: TrainingInputs[Artifact]) -> Step:
        """See `Job.step`; a client that holds the same examples in another split is the same."""
        place, settings, objective = self.place, self.place.settings, self.objective
        return Step(
            kind="clients",
            code=source_digest(type(self), models.get(place.spec.name), *objective.sources),
            settings={
                "model": {"name": place.spec.name, "bias": settings.model.bias},
                "train": self.described,
                "augment": place.dataset.augment,
                "seed": place.cell.seed,
                "client": self.client,
                **describe_view(inputs.partition, self.client),
                **self.private(),
                **self.later,
                **self.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "indices": digest_of_held(inputs.partition, self.client),
                "start": inputs.start.digest,
                **{f"round {turn}": before.digest for turn, before in inputs.before.items()},
            },
        )

    def compute(self, inputs: TrainingInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training is not finite.
        """
        examples = examples_of(self.place, inputs, self.client)
        start = load_start(inputs.start, self.place.device)
        past = self.memory.of_client(inputs)
        begun = time.perf_counter()
        try:
            trained, beside = self.train(self.place.spec.load(start), examples, self.chance(inputs), past)
            kept = self._kept(examples, start, trained, past)
        except DivergedClientError as error:
            raise DivergedClientError(f"{self.whose}: {error}") from error
        timings = {"seconds": time.perf_counter() - begun}
        training = {"num_examples": len(examples), "epoch_losses": trained.epoch_losses, **beside}
        tensors = {TENSORS: trained.parameters, **kept}
        return Content(tensors=tensors, documents={"training.json": training}, timings=timings)

    def private(self) -> dict[str, Any]:
        """Say what belongs to the key beside: nothing without differential privacy."""
        return {}

    def chance(self, inputs: TrainingInputs[Artifact]) -> torch.Generator:
        """Build the generator of the training.

        Args:
            inputs: the artifacts.

        Returns:
            A generator on the CPU.
        """
        return self.generator(Stream.CLIENT)

    def train(
        self, network: nn.Module, examples: Examples, generator: torch.Generator, past: Past
    ) -> tuple[Trained, dict[str, Any]]:
        """Train a network.

        Args:
            network: holds the weights that the client starts from; trained in place.
            examples: the client's.
            generator: draws the order of the examples, and whatever else the training leaves to chance.
            past: what earlier rounds left.

        Returns:
            The trained weights, and what is worth knowing of the training beside.
        """
        settings, augmented = self.place.train, self.place.dataset.augment
        losses = self.losses(network, examples, past)
        return train(network, examples, settings, generator=generator, losses=losses, augmented=augmented), {}

    def losses(self, network: nn.Module, examples: Examples, past: Past) -> Losses:
        """Make the loss that the client minimises.

        Args:
            network: holds the weights that the client starts from.
            examples: the client's.
            past: what earlier rounds left.

        Returns:
            The loss of each example of a batch.
        """
        return self.objective.losses(network, examples.labels, self.place.dataset.classes, past)

    def _kept(self, examples: Examples, start: Parameters, trained: Trained, past: Past) -> Files:
        """Make what the objective leaves to the next round; most leave nothing."""
        if self.objective.objective.exchange is None:
            return {}
        settings, place = self.place.train, self.place
        training = LocalTraining(
            start=start,
            trained={name: tensor.to(place.device) for name, tensor in trained.parameters.items()},
            steps=count_steps(settings, len(examples)),
            learning_rate=settings.learning_rate,
            loss_of=lambda weights: mean_loss(place.spec.load(weights).eval(), examples),
        )
        return self.memory.after_training(training, past)
