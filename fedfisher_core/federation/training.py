"""Training one client."""

import hashlib
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedfisher_core.client.objectives.binding import BoundObjective, bind_objective
from fedfisher_core.client.objectives.objective import Losses
from fedfisher_core.client.training import Trained, train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.federation.inputs import StartInputs
from fedfisher_core.federation.partition import describe_view, examples_of, held_by
from fedfisher_core.federation.place import ClientJob
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.models.spec import models
from fedfisher_core.seeds import Stream
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step


@dataclass(frozen=True)
class TrainClient(ClientJob[StartInputs[Artifact]]):
    """Train one client."""

    @property
    def objective(self) -> BoundObjective:
        """What the client minimises."""
        return bind_objective(self.place.cell.objective, self.place.settings.train.objective)

    def size(self, inputs: StartInputs[Artifact]) -> float:
        """See `Job.size`."""
        train, examples = self.place.settings.train, len(held_by(inputs.partition, self.client))
        return float(train.steps * train.batch_size if train.steps else (train.epochs or 1) * examples)

    def step(self, inputs: StartInputs[Artifact]) -> Step:
        """See `Job.step`; a client that holds the same examples in another split is the same."""
        place, settings, objective = self.place, self.place.settings, self.objective
        return Step(
            kind="clients",
            code=source_digest(type(self), models.get(place.cell.model), objective.objective.function),
            settings={
                "model": {"name": place.cell.model, "bias": settings.model.bias},
                "train": {
                    **settings.train.model_dump(mode="json", exclude_none=True, exclude={"objective"}),
                    **objective.described(),
                },
                "augment": place.dataset.augment,
                "seed": place.cell.seed,
                "client": self.client,
                **describe_view(inputs.partition, self.client),
                **self.private(),
                **self.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "indices": hashlib.sha256(held_by(inputs.partition, self.client).tobytes()).hexdigest(),
                "start": inputs.start.digest,
            },
        )

    def compute(self, inputs: StartInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training is not finite.
        """
        examples = examples_of(self.place, inputs, self.client)
        begun = time.perf_counter()
        try:
            network = self.place.spec.load(load_start(inputs.start, self.place.device))
            trained, beside = self.train(network, examples, self.chance(inputs))
        except DivergedClientError as error:
            raise DivergedClientError(f"{self.whose}: {error}") from error
        timings = {"seconds": time.perf_counter() - begun}
        training = {"num_examples": len(examples), "epoch_losses": trained.epoch_losses, **beside}
        return Content(tensors={TENSORS: trained.parameters}, documents={"training.json": training}, timings=timings)

    def private(self) -> dict[str, Any]:
        """Say what belongs to the key beside: nothing without differential privacy."""
        return {}

    def chance(self, inputs: StartInputs[Artifact]) -> torch.Generator:
        """Build the generator of the training.

        Args:
            inputs: the artifacts.

        Returns:
            A generator on the CPU.
        """
        return self.generator(Stream.CLIENT)

    def train(
        self, network: nn.Module, examples: Examples, generator: torch.Generator
    ) -> tuple[Trained, dict[str, Any]]:
        """Train a network.

        Args:
            network: holds the weights that the client starts from; trained in place.
            examples: the client's.
            generator: draws the order of the examples, and whatever else the training leaves to chance.

        Returns:
            The trained weights, and what is worth knowing of the training beside.
        """
        settings, augmented = self.place.settings.train, self.place.dataset.augment
        losses = self.losses(network, examples)
        return train(network, examples, settings, generator=generator, losses=losses, augmented=augmented), {}

    def losses(self, network: nn.Module, examples: Examples) -> Losses:
        """Make the loss that the client minimises.

        Args:
            network: holds the weights that the client starts from.
            examples: the client's.

        Returns:
            The loss of each example of a batch.
        """
        return self.objective.losses(network, examples.labels, self.place.dataset.classes)
