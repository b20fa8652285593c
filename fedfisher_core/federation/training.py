"""Training one client."""

import hashlib
import time
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from fedfisher_core.client.training import Trained, train
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.federation.clients import TENSORS, examples_of
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import ClientJob, branch_of, client_name
from fedfisher_core.federation.start import load_start
from fedfisher_core.models.spec import models
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step

R = TypeVar("R")


@dataclass(frozen=True)
class ClientInputs(Generic[R]):
    """What a client has before its training.

    Args:
        data: the decoded data set.
        partition: who holds what.
        start: the weights that it starts from.
    """

    data: R
    partition: R
    start: R


@dataclass(frozen=True)
class TrainClient(ClientJob[ClientInputs[Artifact]]):
    """Train one client.

    Args:
        needs: names of the jobs before.
    """

    needs: ClientInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"train {client_name(self.client)}: {self.place.label}"

    def size(self, inputs: ClientInputs[Artifact]) -> float:
        """See `Job.size`."""
        train, examples = self.place.settings.train, len(held_by(inputs.partition, self.client))
        return float(train.steps * train.batch_size if train.steps else (train.epochs or 1) * examples)

    def step(self, inputs: ClientInputs[Artifact]) -> Step:
        """See `Job.step`; a client that holds the same examples in another split is the same."""
        place, settings = self.place, self.place.settings
        return Step(
            kind="clients",
            code=source_digest(type(self), models.get(place.cell.model)),
            settings={
                "model": {"name": place.cell.model, "bias": settings.model.bias},
                "train": settings.train.model_dump(mode="json", exclude_none=True),
                "augment": datasets.get(place.cell.dataset).augment,
                "seed": place.cell.seed,
                "client": self.client,
                **self.private(),
                **place.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "indices": hashlib.sha256(held_by(inputs.partition, self.client).tobytes()).hexdigest(),
                "start": inputs.start.digest,
            },
        )

    def compute(self, inputs: ClientInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training is not finite.
        """
        examples = examples_of(self.place, inputs.data, inputs.partition, self.client)
        begun = time.perf_counter()
        try:
            network = self.place.spec.load(load_start(inputs.start, self.place.device))
            trained, beside = self.train(network, examples)
        except DivergedClientError as error:
            raise DivergedClientError(f"{client_name(self.client)} of {self.place.label}: {error}") from error
        seconds = time.perf_counter() - begun
        training = {"num_examples": len(examples), "epoch_losses": trained.epoch_losses, **beside}
        return Content(
            tensors={TENSORS: trained.parameters},
            documents={"training.json": training},
            timings={"seconds": seconds},
        )

    def private(self) -> dict[str, Any]:
        """Say what belongs to the key beside: nothing without differential privacy."""
        return {}

    def train(self, network: nn.Module, examples: Examples) -> tuple[Trained, dict[str, Any]]:
        """Train a network.

        Args:
            network: holds the weights that the client starts from; trained in place.
            examples: the client's.

        Returns:
            The trained weights, and what is worth knowing of the training beside.
        """
        augmented = datasets.get(self.place.cell.dataset).augment
        trained = train(network, examples, self.place.settings.train, generator=self.generator(), augmented=augmented)
        return trained, {}

    def generator(self) -> torch.Generator:
        """Draws the order of the examples, and whatever else the training leaves to chance."""
        return torch_generator(self.place.cell.seed, Stream.CLIENT, branch_of(self.client))
