"""The federation of a job, with its setting and seed, the job's round, and the inputs that jobs share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import torch
from torch import nn

from fedfisher_core.client.objectives.objective import ConfiguredObjective, configure_objective
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.data.texts import tokenised
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.job import Job, Numerics
from fedfisher_core.engine.seeds import Stream, numpy_generator, torch_generator
from fedfisher_core.methods.server_optimisers.configured import ConfiguredServerOptimiser, configure_server_optimiser
from fedfisher_core.models.spec import Lora, ModelSpec, Parameters
from fedfisher_core.models.trunks.trunk import Pretrained, split_name
from fedfisher_core.settings import FederationSettings, FisherSettings, SeededSetting, TrainSettings

I = TypeVar("I")  # noqa: E741

POOLED = -1
"""Number of the pooled client, which holds the data of all clients."""

R = TypeVar("R")


@dataclass(frozen=True)
class Federation:
    """Clients and a server in one seeded setting.

    Args:
        title: distinguishes federations of one experiment with the same seeded setting; the label starts with it.
    """

    settings: FederationSettings
    setting: SeededSetting
    numerics: Numerics
    title: str = ""

    @computed_once
    def label(self) -> str:
        """What people read in the names of jobs."""
        return f"{self.title}, {self.setting.label}" if self.title else self.setting.label

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        return torch.device(self.numerics.device)

    @property
    def decoded(self) -> DatasetSpec:
        """The data set as it is decoded, with texts as tokens."""
        text = self.settings.data.text
        return tokenised(datasets.get(self.setting.dataset), tokenizer=text.tokenizer, length=text.length)

    @property
    def dataset(self) -> DatasetSpec:
        """The data set that clients share, as their networks take it."""
        spec = self.decoded
        if self.settings.data.augment == "never":
            spec = replace(spec, augment=False)
        return spec if self.trunk is None else spec.of_features(self.trunk.features)

    @computed_once
    def trunk(self) -> Pretrained | None:
        """The frozen network whose features replace examples; None where clients train on the examples."""
        return split_name(self.setting.model)[0]

    @computed_once
    def spec(self) -> ModelSpec:
        """The network that the server makes, and that clients train."""
        data, settings, name = self.dataset, self.settings.model, split_name(self.setting.model)[1]
        lora = Lora(**settings.lora.model_dump(exclude={"ranks"}))
        return ModelSpec(name=name, inputs=data.inputs, classes=data.classes, bias=settings.bias, lora=lora)

    def spec_of(self, client: int) -> ModelSpec:
        """The network whose weights a client sends, which has fewer where its adapters have a smaller rank."""
        lora = self.settings.model.lora
        if lora.ranks is None or client == POOLED:
            return self.spec
        rank = lora.ranks[client % len(lora.ranks)]
        return self.spec if rank == lora.rank else replace(self.spec, widths=(rank,))

    @property
    def specs(self) -> list[ModelSpec]:
        """The server's network, and those that clients send, each once."""
        turns = len(self.settings.model.lora.ranks or ())
        return list(dict.fromkeys([self.spec, *map(self.spec_of, self.participants[:turns])]))

    def network(self, weights: Parameters) -> nn.Module:
        """Build the network with some weights, in evaluation mode, on the device that computes."""
        return self.spec.load({name: tensor.to(self.device) for name, tensor in weights.items()}).eval()

    @computed_once
    def train(self) -> TrainSettings:
        """How clients that minimise this setting's objective train."""
        return self.settings.train.of(self.setting.objective)

    @property
    def objective(self) -> ConfiguredObjective:
        """What clients minimise."""
        return configure_objective(self.setting.objective, self.settings.train.objective)

    @property
    def optimiser(self) -> ConfiguredServerOptimiser:
        """How the server goes on from an aggregate."""
        return configure_server_optimiser(self.setting.server_optimiser, self.settings.rounds.server_optimiser)

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
        return range(self.setting.clients - self.settings.unseen_clients)

    @property
    def unseen(self) -> range:
        """The clients that take part in no round: the last ones."""
        return range(len(self.participants), self.setting.clients)

    def cohort(self, round_number: int) -> tuple[int, ...]:
        """List the clients that take part in a round, in ascending order; all methods have the same."""
        return self._cohorts[round_number - 1] if self._cohorts else self._all_clients

    @computed_once
    def _all_clients(self) -> tuple[int, ...]:
        return tuple(self.participants)

    @computed_once
    def _cohorts(self) -> tuple[tuple[int, ...], ...]:
        """The cohort of each round; empty where all participants take part in every round."""
        clients, rounds = len(self.participants), self.settings.rounds
        if rounds.cohort is None or rounds.cohort == clients:
            return ()
        generators = (
            numpy_generator(self.setting.seed, Stream.COHORT, round_number)
            for round_number in range(1, rounds.count + 1)
        )
        drawn = (one.choice(clients, rounds.cohort, replace=False) for one in generators)
        return tuple(tuple(sorted(one.tolist())) for one in drawn)


@dataclass(frozen=True)
class ClientJob(Job[I]):
    """A job of one client, or of the pooled client, in a round counted from 1."""

    federation: Federation
    client: int
    round_number: int = field(default=1, kw_only=True)

    @property
    def owner(self) -> str:
        """What messages call the client."""
        later = "" if self.round_number == 1 else f" in round {self.round_number}"
        return f"{client_name(self.client)}{later} of {self.federation.label}"

    @property
    def branch(self) -> int:
        """Branch of the seed tree; the pooled client and the server share the first."""
        return self.client + 1

    @property
    def tags(self) -> tuple[str, ...]:
        """See `Job.tags`."""
        return (*super().tags, self.federation.setting.dataset, f"round {self.round_number}")

    def generator(self, stream: Stream) -> torch.Generator:
        """Build the client's generator of a stream in this round."""
        return torch_generator(self.federation.setting.seed, stream, self.branch, round_number=self.round_number)

    @property
    def later(self) -> dict[str, int]:
        """What the key of a round after the first has in addition."""
        return {} if self.round_number == 1 else {"round": self.round_number}


def client_name(client: int) -> str:
    """Name a client for messages and run names."""
    return "pooled client" if client == POOLED else f"client {client}"


@dataclass(frozen=True)
class Round:
    """One round of the federations that share its clients.

    Args:
        number: from 1.
        method: label of the method whose global network clients start from; None in round 1, which all methods share.
    """

    number: int = 1
    method: str | None = None

    @property
    def suffix(self) -> str:
        """What distinguishes the names of its jobs from those of the first round."""
        return "" if self.number == 1 else f", round {self.number} of {self.method}"


FIRST = Round()


def client_title(federation: Federation, client: int, round_number: Round = FIRST) -> str:
    """What people read in the names of a client's jobs."""
    return f"{client_name(client)} of {federation.label}{round_number.suffix}"


def training_name(federation: Federation, client: int, round_number: Round = FIRST) -> str:
    """Name the training of a client in a round."""
    return f"train {client_title(federation, client, round_number)}"


def aggregation_name(federation: Federation, label: str, number: int) -> str:
    """Name the aggregation by a method in a round."""
    return f"aggregate {_method_title(federation, label, number)}"


def testing_name(federation: Federation, label: str, number: int) -> str:
    """Name the evaluation of what a method makes in a round."""
    return f"evaluate {_method_title(federation, label, number)}"


def _method_title(federation: Federation, label: str, number: int) -> str:
    return f"{label}{'' if number == 1 else f', round {number}'} of {federation.label}"


@dataclass(frozen=True)
class DataInputs(Generic[R]):
    """The decoded data set."""

    data: R


@dataclass(frozen=True)
class PartitionInputs(DataInputs[R]):
    """The decoded data set, and which client holds which example."""

    partition: R


@dataclass(frozen=True)
class StartInputs(PartitionInputs[R]):
    """What a client has before its training, and the server before the first upload.

    Args:
        start: the initial weights, or what the server made in the round before.
    """

    start: R


@dataclass(frozen=True)
class ModelInputs(PartitionInputs[R]):
    """What a measure of a global model needs.

    Args:
        aggregate: the global model that clients get, after the server's optimiser.
    """

    aggregate: R


@dataclass(frozen=True)
class TrainingInputs(StartInputs[R]):
    """What a client trains from.

    Args:
        before: the client's last training, by its round; empty where the objective does not read it.
    """

    before: Mapping[str, R] = field(default_factory=dict)
