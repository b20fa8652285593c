"""The test examples of a federation: as its clients take them, which are whose, and how networks do on them."""

from functools import partial

import torch
from torch import Tensor

from fedfisher_core.data.natural import makers_of
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.evaluation.measures import Measures, Seen, measure_each, measure_mean, measure_mean_logit
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.inputs import PartitionInputs
from fedfisher_core.federation.partition import held_by, label_counts, participants_of, scaling_of, shifts_of
from fedfisher_core.federation.place import Place
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.settings import NATURAL_SCHEMES
from fedfisher_core.store import Artifact


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
