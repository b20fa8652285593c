"""Measures of a global network on clients' own examples, and the jobs that take them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import torch
from pydantic import TypeAdapter

from fedfisher_core.client.training import train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.seeds import Stream
from fedfisher_core.engine.store import Artifact, Content, read_document, read_tensors, understood
from fedfisher_core.federation.aggregating import Aggregation, Sent, finite_clients
from fedfisher_core.federation.canary import CLIENT, canary_of
from fedfisher_core.federation.federation import ClientJob, Federation, ModelInputs, R, client_title
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.methods.method import Method
from fedfisher_core.models.evaluation import accuracy, mean_loss
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.settings import PersonalisationSettings, TrainSettings

C = TypeVar("C")

_BARRIER = "barrier.json"
_EXPOSURE = "exposure.json"
_PERSONALISATION = "personalisation.json"


@dataclass(frozen=True)
class Score:
    """What is measured of a network: accuracy as a fraction, and mean cross-entropy in nats."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Compared:
    """Two networks on the same examples.

    Args:
        own: of the client's own network, or of the global network after the client has trained it.
    """

    own: Score
    shared: Score


@dataclass(frozen=True)
class BarrierInputs(ModelInputs[R]):
    """What the barrier needs.

    Args:
        clients: what each client of the last round had ready, by number.
    """

    clients: Mapping[int, Sent[R]]


@dataclass(frozen=True)
class _CompareNetworks(Job[BarrierInputs[Artifact]]):
    """Compare the global network with networks of the clients."""

    version: ClassVar[int] = 1
    action: ClassVar[str] = "compare"

    federation: Federation

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        return {"model": _model(self.federation), "seed": self.federation.setting.seed, **self.numerics.described()}


@dataclass(frozen=True)
class MeasureBarrier(_CompareNetworks):
    """Compare the network of each client of the last round with the global one, on the client's own training examples.

    Client-server barrier of client i (FedFish, Eq. 5): by how much theta is worse than theta_i on D_i. theta_i is what
    the client has trained, before anything is encoded.
    """

    kind: ClassVar[str] = "barriers"

    def compute(self, inputs: BarrierInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        shared, compared = load_start(inputs.aggregate, self.federation.device), {}
        for client, sent in sorted(finite_clients(inputs.clients)[0].items()):
            examples = examples_of(self.federation, inputs, client)
            own = read_tensors(sent.trained, TENSORS)
            compared[str(client)] = asdict(
                Compared(own=_score(self.federation, own, examples), shared=_score(self.federation, shared, examples))
            )
        return Content(documents={_BARRIER: compared})


@understood
def read_barrier(artifact: Artifact) -> Score:
    """Read a client-server barrier that `MeasureBarrier` made.

    Returns:
        The accuracy that the global network lacks and the loss that it has more, compared with the clients' networks,
        each on its client's training examples. Means over clients, all with the same weight.
    """
    compared = TypeAdapter(dict[str, Compared]).validate_python(read_document(artifact, _BARRIER)).values()
    own, shared = mean_score([one.own for one in compared]), mean_score([one.shared for one in compared])
    return Score(accuracy=own.accuracy - shared.accuracy, loss=shared.loss - own.loss)


@dataclass(frozen=True)
class Exposure:
    """How much two networks give away of the canary, in bits; see `fedfisher_core.privacy.canaries.exposure`.

    Args:
        own: of the client that holds the canary, as it was trained; None where it diverged in the last round.
        shared: of the global network.
    """

    own: float | None
    shared: float


@dataclass(frozen=True)
class MeasureExposure(_CompareNetworks):
    """Measure how much the global network, and that of the client that holds the canary, give away of it."""

    kind: ClassVar[str] = "exposures"

    def compute(self, inputs: BarrierInputs[Artifact]) -> Content:
        """See `Job.compute`; ArithmeticError where losses are not finite."""
        own = finite_clients(inputs.clients)[0].get(CLIENT)
        exposed = Exposure(
            own=None if own is None else self._exposure(inputs, read_tensors(own.trained, TENSORS)),
            shared=self._exposure(inputs, load_start(inputs.aggregate, self.federation.device)),
        )
        return Content(documents={_EXPOSURE: asdict(exposed)})

    def _exposure(self, inputs: BarrierInputs[Artifact], weights: Parameters) -> float:
        try:
            return canary_of(inputs.partition).exposure(self.federation.network(weights))
        except InputError as error:
            raise ArithmeticError(f"{self.name}: {error}") from error


@understood
def read_exposure(artifact: Artifact) -> Exposure:
    """Read what `MeasureExposure` measured."""
    return TypeAdapter(Exposure).validate_python(read_document(artifact, _EXPOSURE))


@dataclass(frozen=True)
class Personalise(ClientJob[ModelInputs[Artifact]]):
    """Let an unseen client train the global network on some of its examples, and measure it on the others.

    The client splits its examples alike for all methods, by the generator that later draws the order of training.
    """

    kind: ClassVar[str] = "personalisations"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "personalise"

    personalisation: PersonalisationSettings

    @property
    def training(self) -> TrainSettings:
        """How it trains: as clients of the federation do, but with its own number of epochs and plain cross-entropy."""
        changes = {"epochs": self.personalisation.epochs, "steps": None}
        return self.federation.train.model_copy(update=changes)

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        return {
            "model": _model(self.federation),
            "train": self.training.model_dump(mode="json", exclude_none=True, exclude={"objective", "together"}),
            "share": self.personalisation.share,
            "augment": self.federation.dataset.augment,
            "seed": self.federation.setting.seed,
            "client": self.client,
            **self.numerics.described(),
        }

    def compute(self, inputs: ModelInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training is not finite.
        """
        examples, generator = examples_of(self.federation, inputs, self.client), self.generator(Stream.PERSONALISATION)
        order = torch.randperm(len(examples), generator=generator).to(self.federation.device)
        trained_on, measured_on = order.tensor_split([_taken(self.personalisation.share, len(examples))])
        shared = load_start(inputs.aggregate, self.federation.device)
        try:
            own = train(
                self.federation.spec.load(shared),
                _some(examples, trained_on),
                self.training,
                generator=generator,
                augmented=self.federation.dataset.augment,
            )
        except DivergedClientError as error:
            raise DivergedClientError(f"{self.owner}, for itself: {error}") from error
        others = _some(examples, measured_on)
        compared = Compared(
            own=_score(self.federation, own.parameters, others), shared=_score(self.federation, shared, others)
        )
        return Content(documents={_PERSONALISATION: asdict(compared)})


@understood
def read_personalisation(artifact: Artifact) -> Compared:
    """Read both networks' scores on the examples that an unseen client did not train on."""
    return TypeAdapter(Compared).validate_python(read_document(artifact, _PERSONALISATION))


def mean_score(scores: Sequence[Score]) -> Score:
    """Average over at least one client, all with the same weight."""
    count = len(scores)
    return Score(sum(one.accuracy for one in scores) / count, sum(one.loss for one in scores) / count)


def _model(federation: Federation) -> dict[str, str | bool]:
    code = code_of(models.get(federation.spec.name))
    return {"name": federation.spec.identity, "code": code, "bias": federation.settings.model.bias}


def _taken(share: float, examples: int) -> int:
    """How many of a client's examples a share is, rounded down, but at least one."""
    return max(1, int(share * examples))


def _some(examples: Examples, indices: torch.Tensor) -> Examples:
    return Examples(examples.inputs[indices], examples.labels[indices])


def _score(federation: Federation, weights: Parameters, examples: Examples) -> Score:
    network = federation.network(weights)
    return Score(accuracy=accuracy(network, examples), loss=mean_loss(network, examples))


@dataclass(frozen=True)
class Measuring:
    """What is measured of one method in one federation; nothing where the method returns no single network."""

    label: str
    last: Aggregation

    @property
    def _federation(self) -> Federation:
        return self.last.federation

    @property
    def _method(self) -> Method:
        return self.last.configured.method

    @property
    def _needs(self) -> dict[str, Any]:
        """What every measure needs."""
        return {"data": self.last.needs.data, "partition": self.last.needs.partition, "aggregate": self.last}

    def jobs(self) -> Iterator[Job[Any]]:
        """List all jobs."""
        yield from (job for job in (self.barrier, self.exposure) if job is not None)
        yield from self.personalisations

    @property
    def barrier(self) -> MeasureBarrier | None:
        """The job that compares clients' last networks with the global one; None where there is no barrier."""
        return self._compared(MeasureBarrier, "barrier") if self._federation.settings.measures.barrier else None

    @property
    def exposure(self) -> MeasureExposure | None:
        """The job that measures what networks give away of the canary; None where there is none."""
        return self._compared(MeasureExposure, "exposure") if self._federation.settings.measures.canary else None

    def _compared(self, job: Callable[..., C], what: str) -> C | None:
        # The pooled client's network is not compared with clients' networks, nor is one that no client trained.
        if not self._method.continues or self._method.pooled or not self._method.trains:
            return None
        return job(
            self._federation,
            name=f"{what} of {self.label} of {self._federation.label}",
            needs=BarrierInputs(**self._needs, clients=self.last.needs.clients),
            numerics=self._federation.numerics,
        )

    @property
    def personalisations(self) -> tuple[Personalise, ...]:
        """The jobs that let each unseen client train the global network; empty where it is not measured."""
        settings = self._federation.settings.measures.personalisation
        if settings is None or not self._method.continues:
            return ()
        return tuple(
            Personalise(
                self._federation,
                client,
                settings,
                name=f"personalise {self.label} for {client_title(self._federation, client)}",
                needs=ModelInputs(**self._needs),
                numerics=self._federation.numerics,
            )
            for client in self._federation.unseen
        )
