import numpy as np
import pytest
import torch

from fedfisher_core.client.statistics.squared_gradients import SquaredGradients
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from tests import tiny
from tests.methods.clients import SIZES, aggregate


def uploads(*, silent: bool = False) -> list[Upload]:
    """Clients with weights and squared gradients drawn at random; if silent, the first filter has no gradient."""
    made = []
    for client, size in enumerate(SIZES):
        generator = torch.Generator().manual_seed(client)
        weights = tiny.initial(seed=client + 1)
        squares = {name: torch.rand(tensor.shape, generator=generator) for name, tensor in weights.items()}
        if silent:
            squares["conv.weight"][0] = 0
        statistics = {Weights: Weights(weights), SquaredGradients: SquaredGradients(squares)}
        made.append(Upload(num_examples=size, statistics=statistics))
    return made


def slow(clients: list[Upload], step: float) -> dict[str, np.ndarray]:
    result = {}
    for name, start in tiny.initial().items():
        shares = np.array([one.num_examples * one[SquaredGradients].tensors[name].numpy() for one in clients])
        changes = np.array([(start - one[Weights].tensors[name]).numpy() for one in clients])
        result[name] = start.numpy() - step * (shares * changes).sum(0) / shares.sum(0)
    return result


@pytest.mark.parametrize("step", [1.0, 0.3])
def test_the_step_is_weighted_by_coordinate(step: float) -> None:
    clients = uploads()
    (network,) = aggregate("fedfish", clients, global_step=step).networks
    for name, expected in slow(clients, step).items():
        assert np.allclose(network[name].numpy(), expected, atol=1e-6), name


def test_coordinates_without_gradients_are_averaged() -> None:
    clients = uploads(silent=True)
    (network,) = aggregate("fedfish", clients).networks
    (mean,) = aggregate("fedavg", clients).networks
    assert torch.allclose(network["conv.weight"][0], mean["conv.weight"][0], atol=1e-6)
    assert not torch.allclose(network["conv.weight"][1], mean["conv.weight"][1], atol=1e-2)


def test_clients_of_one_mind_keep_their_model() -> None:
    same = tiny.initial(seed=5)
    clients = [
        Upload(num_examples=one.num_examples, statistics=dict(one.statistics) | {Weights: Weights(same)})
        for one in uploads()
    ]
    (network,) = aggregate("fedfish", clients).networks
    assert all(torch.allclose(network[name], tensor, atol=1e-6) for name, tensor in same.items())


def test_the_order_of_clients_does_not_matter() -> None:
    clients = uploads()
    (one,), (other,) = aggregate("fedfish", clients).networks, aggregate("fedfish", clients[::-1]).networks
    assert all(torch.allclose(one[name], other[name], atol=1e-7) for name in one)


def test_gradients_that_are_nearly_nothing_still_count() -> None:
    clients = [
        Upload(
            num_examples=one.num_examples,
            statistics={
                Weights: one[Weights],
                SquaredGradients: SquaredGradients({k: 1e-37 * t for k, t in one[SquaredGradients].tensors.items()}),
            },
        )
        for one in uploads()
    ]
    (network,) = aggregate("fedfish", clients).networks
    for name, expected in slow(uploads(), 1.0).items():
        assert np.allclose(network[name].numpy(), expected, atol=1e-5), name
