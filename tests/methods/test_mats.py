import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import aggregate, bind_written, made_up_uploads

SPECS = [tiny.TINY, tiny.TINY_WITH_BIAS]


def uploads(spec: ModelSpec) -> list[Upload]:
    return made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(3)], spec)


def shrunk(matrix: Tensor, factor: float) -> Tensor:
    off = ~torch.eye(len(matrix), dtype=torch.bool)
    return torch.where(off, factor * matrix.double(), matrix.double())


def solved(clients: list[Upload], layer: str, factor: float) -> Tensor:
    """The stationary point of one layer, by a dense solve in which each client counts the same."""
    left, right = [], []
    for one in clients:
        factors = one[KFAC].factors[layer]
        block = torch.kron(shrunk(factors.outputs, factor), shrunk(factors.inputs, factor))
        left.append(block)
        right.append(block @ to_matrix(one[Weights].tensors, layer).double().flatten())
    return torch.linalg.solve(torch.stack(left).sum(0), torch.stack(right).sum(0))


@pytest.mark.parametrize("spec", SPECS, ids=["no bias", "bias"])
@pytest.mark.parametrize("factor", [1.0, 0.4, 0.0])
def test_it_ends_at_the_stationary_point(spec: ModelSpec, factor: float) -> None:
    clients = uploads(spec)
    settings = {"off_diagonal": [factor], "steps": 500, "tolerance": 1e-7}
    (network,) = aggregate("mats", clients, spec=spec, **settings).networks
    for layer in clients[0][KFAC].factors:
        expected = solved(clients, layer, factor)
        assert torch.allclose(to_matrix(network, layer).double().flatten(), expected, atol=1e-4), layer


def test_it_starts_at_the_plain_mean() -> None:
    clients = uploads(tiny.TINY)
    (network,) = aggregate("mats", clients, steps=1, tolerance=1e30).networks
    for name, tensor in network.items():
        mean = torch.stack([one[Weights].tensors[name] for one in clients]).mean(0)
        assert torch.allclose(tensor, mean, atol=1e-6), name


def test_of_several_factors_the_validation_set_chooses() -> None:
    result = aggregate("mats", uploads(tiny.TINY), off_diagonal=[0.0, 1.0])
    assert result.details["off_diagonal"] in (0.0, 1.0)
    assert "validation_accuracy" in result.details
    assert not bind_written("mats", {}, [tiny.TINY]).validates
