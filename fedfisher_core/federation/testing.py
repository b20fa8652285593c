"""Test examples of a federation: how clients take them, whose they are, and how global models do on them."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.data.natural import makers_of
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.store import Artifact, Content, read_document, understood
from fedfisher_core.federation.aggregating import Aggregation
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation, ModelInputs, PartitionInputs
from fedfisher_core.federation.global_models import read_model
from fedfisher_core.federation.partition import held_by, label_counts, participants_of, scaling_of, shifts_of
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.models.evaluation import Measures, Seen, mean_logit, mean_probability, measure
from fedfisher_core.models.spec import models
from fedfisher_core.settings import NATURAL_SCHEMES

_MEASURES = "measures.json"


@dataclass(frozen=True)
class MeasureModel(Job[ModelInputs[Artifact]]):
    """Measure a global model on the test examples; a separate job, so that a new measure does not aggregate again."""

    kind: ClassVar[str] = "measures"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "evaluate"

    federation: Federation

    @classmethod
    def of(cls, aggregation: Aggregation, *, name: str) -> "MeasureModel":
        """Make the job that measures what an aggregation makes."""
        needs = aggregation.needs
        return cls(
            aggregation.federation,
            name=name,
            needs=ModelInputs(needs.data, needs.partition, aggregation),
            numerics=aggregation.numerics,
        )

    @property
    def tags(self) -> tuple[str, ...]:
        """See `Job.tags`: those of the aggregation."""
        aggregation = self.needs.aggregate
        return (self.kind, *(aggregation.tags[1:] if isinstance(aggregation, Aggregation) else ()))

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        federation = self.federation
        return {
            "model": {"name": federation.spec.identity, "bias": federation.settings.model.bias},
            "code": code_of(models.get(federation.spec.name)),
            "scheme": federation.setting.scheme,
            **self.numerics.described(),
        }

    def compute(self, inputs: ModelInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        measures = measured(self.federation, read_model(inputs.aggregate, self.federation), inputs)
        return Content(documents={_MEASURES: asdict(measures)})


@understood
def read_measures(artifact: Artifact) -> Measures:
    """Read how a global model does on the test examples, from what `MeasureModel` made."""
    return TypeAdapter(Measures).validate_python(read_document(artifact, _MEASURES))


def test_examples(federation: Federation, inputs: PartitionInputs[Artifact]) -> Examples:
    """Read all test examples as networks take them, on the federation's device.

    Where clients scale their own numbers, the owner of each test example scales it, by statistics of its training
    examples, which never leave it.
    """
    dataset, scaling = load_data(inputs.data), scaling_of(inputs.partition)
    scale = None
    if scaling is not None:
        own = own_tests(federation, inputs)
        assert own is not None
        clients = torch.empty(len(dataset.test), dtype=torch.int64)
        for client, rows in enumerate(own):
            clients[rows] = client
        scale = partial(scaling.apply, clients=clients)
    return select(dataset.test, dataset.spec, scale=scale).to(federation.device)


def own_tests(federation: Federation, inputs: PartitionInputs[Artifact]) -> list[Tensor] | None:
    """Find each client's own test examples: those of the makers whose training examples it holds.

    Clients that share a domain share its test examples. Where no client holds a maker's training examples, its test
    examples belong to no client, but count in the accuracy on all.

    Returns:
        Indices of test examples, int64, one tensor a client; None where no column decides the split, or the test
        examples lack it.
    """
    dataset = load_data(inputs.data)
    train, test = dataset.train.groups, dataset.test.groups
    if federation.setting.scheme not in NATURAL_SCHEMES or train is None or test is None:
        return None
    held = [held_by(inputs.partition, client) for client in range(federation.setting.clients)]
    makers = makers_of(held, train.numpy())
    return [torch.isin(test, torch.tensor(own)).nonzero().flatten() for own in makers]


def measured(federation: Federation, made: Aggregate, inputs: PartitionInputs[Artifact]) -> Measures:
    """Measure a global model on the test examples; the worst client is one of those that may take part."""
    test, tests = test_examples(federation, inputs), own_tests(federation, inputs)
    networks = made.modules(federation.spec)
    able = list(participants_of(inputs.partition))
    counts, seen = torch.tensor(label_counts(inputs.partition))[able], _seen(federation, inputs)
    own = None if tests is None else [tests[client] for client in able]
    match made.combine:
        # A combiner leaves one network, whose probabilities are their mean.
        case Combine.MEAN_PROBABILITY | Combine.LEARNT | Combine.MEAN_FEATURE:
            predictors = [mean_probability(networks, made.weights)]
        case Combine.MEAN_LOGIT:
            predictors = [mean_logit(networks, made.weights)]
        case Combine.MEAN_MEASURE:
            predictors = [mean_probability([one], None) for one in networks]
    return measure(predictors, test, counts, seen=seen, own=own)


def _seen(federation: Federation, inputs: PartitionInputs[Artifact]) -> Seen | None:
    """Show the test images to clients as they see their own; None where all see them as they are."""
    dataset, shifts = load_data(inputs.data), shifts_of(inputs.partition)
    if shifts is None or shifts.kind == "labels":
        return None
    return lambda client: select(dataset.test, dataset.spec, view=shifts.of(client, test=True)).inputs.to(
        federation.device
    )
