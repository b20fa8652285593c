"""Where in an experiment the jobs of one federation are."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.lazily import computed_once
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.seeds import Stream, numpy_generator, torch_generator
from fedfisher_core.settings import Cell, FederationSettings, FisherSettings, TrainSettings
from fedfisher_core.trunks.trunk import Trunk, split_name

I = TypeVar("I")  # noqa: E741

POOLED = -1
"""Stands for the one client that holds the data of all."""


@dataclass(frozen=True)
class Place:
    """One federation: a point of the settings.

    Args:
        settings: what is common to all points.
        cell: the point: which data set, network, split and seed.
        numerics: where the jobs compute.
        title: tells federations apart that an experiment has at the same point; stands before the point's label.
    """

    settings: FederationSettings
    cell: Cell
    numerics: Numerics
    title: str = ""

    @computed_once
    def label(self) -> str:
        """What people read in the names of jobs."""
        return f"{self.title}, {self.cell.label}" if self.title else self.cell.label

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        return torch.device(self.numerics.device)

    @property
    def dataset(self) -> DatasetSpec:
        """The data set that clients share, as their networks take it."""
        spec = datasets.get(self.cell.dataset)
        if self.settings.data.augment == "never":
            spec = replace(spec, augment=False)
        return spec if self.trunk is None else spec.of_features(self.trunk.features)

    @computed_once
    def trunk(self) -> Trunk | None:
        """The frozen network whose features stand in the place of images; None for the images themselves."""
        return split_name(self.cell.model)[0]

    @computed_once
    def spec(self) -> ModelSpec:
        """The network that the clients train."""
        data, bias, name = self.dataset, self.settings.model.bias, split_name(self.cell.model)[1]
        return ModelSpec(name=name, inputs=data.inputs, classes=data.classes, bias=bias)

    @computed_once
    def train(self) -> TrainSettings:
        """How clients that minimise this point's objective train."""
        return self.settings.train.of(self.cell.objective)

    @computed_once
    def fisher(self) -> FisherSettings:
        """How clients compute their Fishers of this data set."""
        settings = self.settings
        return settings.fisher.chosen(
            self.dataset.classes, private=settings.privacy is not None, on_gpu=self.device.type == "cuda"
        )

    @property
    def participants(self) -> range:
        """The clients that may take part in a round."""
        return range(self.cell.clients - self.settings.unseen_clients)

    @property
    def unseen(self) -> range:
        """The clients that take part in none: the last ones."""
        return range(len(self.participants), self.cell.clients)

    def cohort(self, turn: int) -> tuple[int, ...]:
        """List the clients that take part in a round, the same whatever aggregates them.

        Args:
            turn: the round, from 1.

        Returns:
            Their numbers, ascending.
        """
        return self._cohorts[turn - 1] if self._cohorts else self._everyone

    @computed_once
    def _everyone(self) -> tuple[int, ...]:
        return tuple(self.participants)

    @computed_once
    def _cohorts(self) -> tuple[tuple[int, ...], ...]:
        """The cohort of each round; nothing where all that may take part do."""
        clients, rounds = len(self.participants), self.settings.rounds
        if rounds.cohort is None or rounds.cohort == clients:
            return ()
        generators = (numpy_generator(self.cell.seed, Stream.COHORT, turn) for turn in range(1, rounds.count + 1))
        drawn = (one.choice(clients, rounds.cohort, replace=False) for one in generators)
        return tuple(tuple(sorted(one.tolist())) for one in drawn)


@dataclass(frozen=True)
class ClientJob(Job[I]):
    """A job of one client's side.

    Args:
        place: the federation.
        client: its number, or POOLED.
        turn: the round, from 1.
    """

    place: Place
    client: int
    turn: int = field(default=1, kw_only=True)

    @property
    def whose(self) -> str:
        """What messages call the client."""
        later = "" if self.turn == 1 else f" in round {self.turn}"
        return f"{client_name(self.client)}{later} of {self.place.label}"

    @property
    def branch(self) -> int:
        """Branch of the seed tree; the pooled client's, which is also the server's, comes before all others."""
        return self.client + 1

    def generator(self, stream: Stream) -> torch.Generator:
        """Build the client's own generator of a stream, in this round."""
        return torch_generator(self.place.cell.seed, stream, self.branch, turn=self.turn)

    @property
    def later(self) -> dict[str, int]:
        """What belongs to the key of a round after the first."""
        return {} if self.turn == 1 else {"round": self.turn}


def client_name(client: int) -> str:
    """Name a client for messages and run names."""
    return "pooled client" if client == POOLED else f"client {client}"
