"""The test examples of a federation: as its clients take them, which are whose, and how global models do on them."""

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.data.natural import makers_of
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.evaluation.measures import Measures, Seen, measure_each, measure_mean, measure_mean_logit
from fedfisher_core.federation.aggregating import Aggregation
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.global_models import read_model
from fedfisher_core.federation.inputs import ModelInputs, PartitionInputs
from fedfisher_core.federation.partition import held_by, label_counts, participants_of, scaling_of, shifts_of
from fedfisher_core.federation.place import Place
from fedfisher_core.jobs import Job, digests_of
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.models.spec import models
from fedfisher_core.settings import NATURAL_SCHEMES
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document

_MEASURES = "measures.json"


@dataclass(frozen=True)
class MeasureModel(Job[ModelInputs[Artifact]]):
    """Measure a global model on the test examples.

    A job of its own, so that another measure aggregates nothing anew.

    Args:
        place: the federation.
    """

    place: Place

    @classmethod
    def of(cls, aggregation: Aggregation, *, name: str) -> "MeasureModel":
        """Measure what an aggregation makes.

        Args:
            aggregation: the job.
            name: of the job that measures.

        Returns:
            The job that measures it.
        """
        needs = aggregation.needs
        return cls(
            aggregation.place,
            name=name,
            needs=ModelInputs(needs.data, needs.partition, aggregation.name),
            numerics=aggregation.numerics,
        )

    @property
    def pace(self) -> Hashable:
        """See `Job.pace`: large networks take longer."""
        return type(self), self.place.spec

    def without(self, lost: Mapping[str, Exception]) -> None:
        """See `Job.without`: it goes with the aggregate, which says how many clients must be left."""

    def step(self, inputs: ModelInputs[Artifact]) -> Step:
        """See `Job.step`."""
        place = self.place
        return Step(
            kind="measures",
            code=source_digest(type(self), models.get(place.spec.name)),
            settings={
                "model": {"name": place.spec.name, "bias": place.settings.model.bias},
                "scheme": place.cell.scheme,
                **self.numerics.described(),
            },
            inputs=digests_of(inputs),
        )

    def compute(self, inputs: ModelInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        measures = measured(self.place, read_model(inputs.aggregate, self.place), inputs)
        return Content(documents={_MEASURES: asdict(measures)})


def read_measures(artifact: Artifact) -> Measures:
    """Read how a global model does on the test examples.

    Args:
        artifact: made by `MeasureModel`.

    Returns:
        The measures.
    """
    return TypeAdapter(Measures).validate_python(read_document(artifact, _MEASURES))


def test_examples(place: Place, inputs: PartitionInputs[Artifact]) -> Examples:
    """Read all test examples as networks take them.

    Where clients scale their own numbers, each test example is scaled by the client whose it is, as that client would:
    by statistics of its training examples, which never leave it.

    Args:
        place: the federation.
        inputs: the data set, and who holds what.

    Returns:
        The examples, on the federation's device.
    """
    dataset, scaling = load_data(inputs.data), scaling_of(inputs.partition)
    scale = None
    if scaling is not None:
        own = own_tests(place, inputs)
        assert own is not None
        clients = torch.empty(len(dataset.test), dtype=torch.int64)
        for client, rows in enumerate(own):
            clients[rows] = client
        scale = partial(scaling.apply, clients=clients)
    return select(dataset.test, dataset.spec, scale=scale).to(place.device)


def own_tests(place: Place, inputs: PartitionInputs[Artifact]) -> list[Tensor] | None:
    """Find each client's own test examples: those of the makers whose training examples it holds.

    Clients that share a domain share its test examples. Those of a maker whose training examples nobody holds are no
    client's, but count in the accuracy on all.

    Args:
        place: the federation.
        inputs: the data set, and who holds what.

    Returns:
        Indices of test examples, int64, one tensor a client; None where no column decides the split, or the test
        examples lack it.
    """
    dataset = load_data(inputs.data)
    train, test = dataset.train.groups, dataset.test.groups
    if place.cell.scheme not in NATURAL_SCHEMES or train is None or test is None:
        return None
    held = [held_by(inputs.partition, client) for client in range(place.cell.clients)]
    makers = makers_of(held, train.numpy())
    return [torch.isin(test, torch.tensor(own)).nonzero().flatten() for own in makers]


def measured(place: Place, made: Aggregate, inputs: PartitionInputs[Artifact]) -> Measures:
    """Measure a global model on the test examples.

    Args:
        place: the federation.
        made: the model.
        inputs: the data set, and who holds what.

    Returns:
        The measures; the worst client is one of those that may take part.
    """
    test, tests = test_examples(place, inputs), own_tests(place, inputs)
    spec = made.spec or place.spec
    networks = [spec.load(parameters).eval() for parameters in made.networks]
    able = list(participants_of(inputs.partition))
    counts, seen = torch.tensor(label_counts(inputs.partition))[able], _seen(place, inputs)
    own = None if tests is None else [tests[client] for client in able]
    match made.combine:
        case Combine.MEAN_PROBABILITY:
            return measure_mean(networks, test, counts, weights=made.weights, seen=seen, own=own)
        case Combine.MEAN_LOGIT:
            return measure_mean_logit(networks, test, counts, weights=made.weights, seen=seen, own=own)
        case Combine.MEAN_MEASURE:
            return measure_each(networks, test, counts, seen=seen, own=own)


def _seen(place: Place, inputs: PartitionInputs[Artifact]) -> Seen | None:
    """Show the test images to clients as they see their own; None where all see them as they are."""
    dataset, shifts = load_data(inputs.data), shifts_of(inputs.partition)
    if shifts is None or shifts.kind == "labels":
        return None
    return lambda client: select(dataset.test, dataset.spec, view=shifts.of(client, test=True)).inputs.to(place.device)
