"""Training one client."""

import hashlib
import time
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.training import Trained, train
from fedfisher_core.data.partitions import Indices
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import load_partition
from fedfisher_core.federation.place import POOLED, Place, branch_of, client_name
from fedfisher_core.federation.privacy import described, noise_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.models.spec import Parameters
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.store import Artifact, Content, Step, read_tensors

R = TypeVar("R")

_TENSORS = "tensors.safetensors"


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
class TrainClient(Job[ClientInputs[Artifact]]):
    """Train one client.

    Args:
        place: the federation.
        client: its number, or POOLED.
        statistics: what it uploads; with differential privacy they share its budget.
        needs: names of the jobs before.
    """

    place: Place
    client: int
    statistics: tuple[type[Statistic], ...]
    needs: ClientInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"train {client_name(self.client)}: {self.place.label}"

    @property
    def numerics(self) -> Numerics:
        """See `Job.numerics`."""
        return self.place.numerics

    @property
    def may_be_lost(self) -> bool:
        """See `Job.may_be_lost`: the pooled client has no others to go on with."""
        return self.client != POOLED

    def size(self, inputs: ClientInputs[Artifact]) -> float:
        """See `Job.size`."""
        train, examples = self.place.settings.train, len(held_by(inputs.partition, self.client))
        return float(train.steps * train.batch_size if train.steps else (train.epochs or 1) * examples)

    def step(self, inputs: ClientInputs[Artifact]) -> Step:
        """See `Job.step`; a client that holds the same examples in another split is the same."""
        place, settings = self.place, self.place.settings
        return Step(
            kind="clients",
            version=1,
            settings={
                "model": {"name": place.cell.model, "bias": settings.model.bias},
                "train": settings.train.model_dump(mode="json", exclude_none=True),
                **({} if settings.model.initialisation == "same" else {"initialisation": "different"}),
                "augment": datasets.get(place.cell.dataset).augment,
                "seed": place.cell.seed,
                "client": self.client,
                **described(settings, self.statistics),
                **place.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "indices": hashlib.sha256(held_by(inputs.partition, self.client).tobytes()).hexdigest(),
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
            trained, noise = self._train(examples, load_start(inputs.start, self.place.device))
        except DivergedClientError as error:
            raise DivergedClientError(f"{client_name(self.client)} of {self.place.label}: {error}") from error
        seconds = time.perf_counter() - begun
        training = {"num_examples": len(examples), "epoch_losses": trained.epoch_losses, **noise}
        return Content(
            tensors={_TENSORS: trained.parameters},
            documents={"training.json": training},
            timings={"seconds": seconds},
        )

    def _train(self, examples: Examples, start: Parameters) -> tuple[Trained, dict[str, Any]]:
        """Train, and say with which noise."""
        place, settings = self.place, self.place.settings
        network = place.spec.load(start)
        generator = torch_generator(place.cell.seed, Stream.CLIENT, branch_of(self.client))
        augmented = datasets.get(place.cell.dataset).augment
        noise = noise_of(settings, len(examples), self.statistics)
        if noise is None or settings.privacy is None:
            return train(network, examples, settings.train, generator=generator, augmented=augmented), {}
        trained = train_privately(
            network,
            examples,
            settings.train,
            noise_multiplier=noise.training,
            gradient_clip=settings.privacy.gradient_clip,
            generator=generator,
            augmented=augmented,
        )
        return trained, {"noise": asdict(noise)}


def load_trained(artifact: Artifact) -> Parameters:
    """Read a client's trained weights.

    Args:
        artifact: made by `TrainClient`.

    Returns:
        Named parameters on the CPU.
    """
    return read_tensors(artifact, _TENSORS)


def held_by(partition: Artifact, client: int) -> Indices:
    """Read which examples a client holds.

    Args:
        partition: made by `SplitData`.
        client: its number, or POOLED.

    Returns:
        Indices of training examples.
    """
    clients = load_partition(partition).clients
    return np.concatenate(clients) if client == POOLED else clients[client]


def examples_of(place: Place, data: Artifact, partition: Artifact, client: int) -> Examples:
    """Read a client's examples.

    Args:
        place: the federation.
        data: the decoded data set.
        partition: who holds what.
        client: its number, or POOLED.

    Returns:
        The examples as a network takes them, on the federation's device.
    """
    dataset = load_data(data)
    return select(dataset.train, dataset.spec, torch.from_numpy(held_by(partition, client))).to(place.device)
