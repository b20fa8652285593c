"""What is measured of a global network on clients' own examples: the client-server barrier, and personalisation."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from pydantic import TypeAdapter

from fedfisher_core.client.training import train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.evaluation.predictions import accuracy, mean_loss
from fedfisher_core.federation.aggregating import Sent
from fedfisher_core.federation.inputs import ModelInputs, R
from fedfisher_core.federation.partition import describe_view, examples_of, held_by
from fedfisher_core.federation.place import ClientJob, Place
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.jobs import Job, digests_of
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.seeds import Stream
from fedfisher_core.settings import PersonalisationSettings, TrainSettings
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors

_BARRIER = "barrier.json"
_PERSONALISATION = "personalisation.json"


@dataclass(frozen=True)
class Score:
    """What is measured of a network on examples.

    Args:
        accuracy: a fraction.
        loss: mean cross-entropy, in nats.
    """

    accuracy: float
    loss: float


@dataclass(frozen=True)
class Compared:
    """Two networks on the same examples.

    Args:
        own: of the client's network, or of what it made of the global one.
        shared: of the global network.
    """

    own: Score
    shared: Score


@dataclass(frozen=True)
class BarrierInputs(ModelInputs[R]):
    """What the barrier needs.

    Args:
        clients: by number, what each client of the last round had ready; those that were lost are missing.
    """

    clients: Mapping[int, Sent[R]]


@dataclass(frozen=True)
class MeasureBarrier(Job[BarrierInputs[Artifact]]):
    """Compare the network of each client of the last round with the global one, on the client's own training examples.

    Client-server barrier of client i (FedFish, Eq. 5): by how much theta is worse than theta_i on D_i. theta_i is what
    the client had trained before anything was encoded.

    Args:
        place: the federation.
    """

    place: Place

    def without(self, lost: Mapping[str, Exception]) -> None:
        """See `Job.without`: it goes with the aggregate, which says how many clients must be left."""

    def step(self, inputs: BarrierInputs[Artifact]) -> Step:
        """See `Job.step`."""
        trained = {f"client_{client}": sent.trained.digest for client, sent in inputs.clients.items()}
        return Step(
            kind="barriers",
            code=source_digest(type(self), models.get(self.place.spec.name)),
            settings={"model": _model(self.place), "seed": self.place.cell.seed, **self.numerics.described()},
            inputs=digests_of(inputs) | trained,
        )

    def compute(self, inputs: BarrierInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        shared, compared = load_start(inputs.aggregate, self.place.device), {}
        for client, sent in sorted(inputs.clients.items()):
            examples = examples_of(self.place, inputs, client)
            own = read_tensors(sent.trained, TENSORS)
            compared[str(client)] = asdict(
                Compared(own=_score(self.place, own, examples), shared=_score(self.place, shared, examples))
            )
        return Content(documents={_BARRIER: compared})


def read_barrier(artifact: Artifact) -> Score:
    """Read a client-server barrier.

    Args:
        artifact: made by `MeasureBarrier`.

    Returns:
        By how much the global network is worse than the clients' own, each on its client's training examples: the
        accuracy that it lacks, and the loss that it has more. The mean over clients, all of the same weight.
    """
    compared = TypeAdapter(dict[str, Compared]).validate_python(read_document(artifact, _BARRIER)).values()
    own, shared = mean_score([one.own for one in compared]), mean_score([one.shared for one in compared])
    return Score(accuracy=own.accuracy - shared.accuracy, loss=shared.loss - own.loss)


@dataclass(frozen=True)
class Personalise(ClientJob[ModelInputs[Artifact]]):
    """Let an unseen client train the global network on a part of its examples, and measure it on the others.

    The client splits its examples alike for all methods, by a generator that goes on to draw the order of training.

    Args:
        personalisation: how long it trains, and on how much.
    """

    personalisation: PersonalisationSettings

    @property
    def recipe(self) -> TrainSettings:
        """How it trains: as clients of the federation do, but for the epochs, and by plain cross-entropy."""
        changes = {"epochs": self.personalisation.epochs, "steps": None}
        return self.place.train.model_copy(update=changes)

    def size(self, inputs: ModelInputs[Artifact]) -> float:
        """See `Job.size`."""
        return float(self.personalisation.epochs * len(held_by(inputs.partition, self.client)))

    def step(self, inputs: ModelInputs[Artifact]) -> Step:
        """See `Job.step`."""
        held = held_by(inputs.partition, self.client)
        return Step(
            kind="personalisations",
            code=source_digest(type(self), models.get(self.place.spec.name)),
            settings={
                "model": _model(self.place),
                "train": self.recipe.model_dump(mode="json", exclude_none=True, exclude={"objective", "together"}),
                "share": self.personalisation.share,
                "augment": self.place.dataset.augment,
                "seed": self.place.cell.seed,
                "client": self.client,
                **describe_view(inputs.partition, self.client),
                **self.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "indices": hashlib.sha256(held.tobytes()).hexdigest(),
                "aggregate": inputs.aggregate.digest,
            },
        )

    def compute(self, inputs: ModelInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training is not finite.
        """
        examples, generator = examples_of(self.place, inputs, self.client), self.generator(Stream.PERSONALISATION)
        order = torch.randperm(len(examples), generator=generator).to(self.place.device)
        trained_on, measured_on = order.tensor_split([_taken(self.personalisation.share, len(examples))])
        shared = load_start(inputs.aggregate, self.place.device)
        try:
            own = train(
                self.place.spec.load(shared),
                _some(examples, trained_on),
                self.recipe,
                generator=generator,
                augmented=self.place.dataset.augment,
            )
        except DivergedClientError as error:
            raise DivergedClientError(f"{self.whose}, for itself: {error}") from error
        others = _some(examples, measured_on)
        compared = Compared(own=_score(self.place, own.parameters, others), shared=_score(self.place, shared, others))
        return Content(documents={_PERSONALISATION: asdict(compared)})


def read_personalisation(artifact: Artifact) -> Compared:
    """Read what an unseen client made of the global network.

    Args:
        artifact: made by `Personalise`.

    Returns:
        Both networks on the examples that the client did not train on.
    """
    return TypeAdapter(Compared).validate_python(read_document(artifact, _PERSONALISATION))


def mean_score(scores: Sequence[Score]) -> Score:
    """Average over clients, all of the same weight.

    Args:
        scores: at least one.

    Returns:
        The mean of each measure.
    """
    count = len(scores)
    return Score(sum(one.accuracy for one in scores) / count, sum(one.loss for one in scores) / count)


def _model(place: Place) -> dict[str, str | bool]:
    return {"name": place.spec.name, "bias": place.settings.model.bias}


def _taken(share: float, examples: int) -> int:
    """How many of a client's examples are a share of them: rounded down, but at least one."""
    return max(1, int(share * examples))


def _some(examples: Examples, indices: torch.Tensor) -> Examples:
    return Examples(examples.inputs[indices], examples.labels[indices])


def _score(place: Place, weights: Parameters, examples: Examples) -> Score:
    on_device = {name: tensor.to(place.device) for name, tensor in weights.items()}
    network = place.spec.load(on_device).eval()
    return Score(accuracy=accuracy(network, examples), loss=mean_loss(network, examples))
