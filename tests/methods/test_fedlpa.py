import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import Examples
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.methods.fedlpa import factor_scales
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import FisherSettings
from tests import tiny
from tests.methods.clients import SIZES, aggregate, made_up_uploads, server

SHARES = [size / sum(SIZES) for size in SIZES]
by_bias = pytest.mark.parametrize("spec", [tiny.TINY, tiny.TINY_WITH_BIAS], ids=["no bias", "bias"])


def uploads(spec: ModelSpec) -> list[Upload]:
    return made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(3)], spec)


# Of the exact Fisher of three classes; the convolution sees nine windows.
SCALES = {"conv": 3**0.5 * 81, "hidden": 3**0.5, "head": 3**0.5}


class Layer:
    """One layer's factors as the authors scale them, with the damping."""

    def __init__(self, clients: list[Upload], layer: str, damping: float) -> None:
        factors = [one[KFAC].factors[layer] for one in clients]
        scale, eye = SCALES[layer], damping * torch.eye(100).double()
        self.inputs = [one.inputs.double() / scale + eye[: len(one.inputs), : len(one.inputs)] for one in factors]
        self.outputs = [one.outputs.double() * scale + eye[: len(one.outputs), : len(one.outputs)] for one in factors]
        self.matrices = [to_matrix(one[Weights].tensors, layer).double() for one in clients]

    def operator(self, matrices: list[Tensor]) -> Tensor:
        """sum_i p_i G_i W_i A_i."""
        each = zip(SHARES, self.outputs, matrices, self.inputs, strict=True)
        return torch.stack([share * (left @ one @ right) for share, left, one, right in each]).sum(0)

    def start(self) -> Tensor:
        left = sum(share * one for share, one in zip(SHARES, self.outputs, strict=True))
        right = sum(share * one for share, one in zip(SHARES, self.inputs, strict=True))
        return torch.linalg.inv(left) @ self.operator(self.matrices) @ torch.linalg.inv(right)


@by_bias
@pytest.mark.parametrize("damping", [0.03, 1.0])
def test_the_end_is_that_of_gradient_descent(spec: ModelSpec, damping: float) -> None:
    clients = uploads(spec)
    (network,) = aggregate("fedlpa", clients, spec=spec, damping=damping, steps=25, rate=0.002).networks
    for name in clients[0][KFAC].factors:
        layer = Layer(clients, name, damping)
        target, end = layer.operator(layer.matrices), layer.start()
        for _ in range(25):
            end = end.clone().requires_grad_()
            (gradient,) = torch.autograd.grad((layer.operator([end] * 3) - target).square().mean(), end)
            end = (end - 0.002 * gradient).detach()
        assert torch.allclose(to_matrix(network, name).double(), end, atol=1e-5), name
        assert not torch.allclose(end, layer.start(), atol=1e-4), name


@by_bias
def test_with_many_steps_it_solves_the_system(spec: ModelSpec) -> None:
    clients = uploads(spec)
    (network,) = aggregate("fedlpa", clients, spec=spec, damping=0.3, steps=10**8, rate=0.001).networks
    for name in clients[0][KFAC].factors:
        layer = Layer(clients, name, 0.3)
        blocks = torch.stack(
            [
                share * torch.kron(left, right)
                for share, left, right in zip(SHARES, layer.outputs, layer.inputs, strict=True)
            ]
        ).sum(0)
        expected = torch.linalg.solve(blocks, layer.operator(layer.matrices).flatten())
        assert torch.allclose(to_matrix(network, name).double().flatten(), expected, atol=1e-4), name


def test_clients_of_one_mind_keep_their_model() -> None:
    (client,) = uploads(tiny.TINY)[:1]
    (network,) = aggregate("fedlpa", [client] * 3, rate=0.01).networks
    assert all(torch.allclose(network[name], tensor, atol=1e-5) for name, tensor in client[Weights].tensors.items())


def test_a_network_is_scaled_as_the_authors_scale_it() -> None:
    """For a linear layer, A is the mean of x x^T; for a convolution, it is divided by the windows as well."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(30, 1, tiny.SIZE, tiny.SIZE, generator=generator)
    network = tiny.TINY.load(tiny.initial()).eval()
    examples = Examples(inputs=inputs, labels=torch.zeros(30, dtype=torch.int64))
    patches = functional.unfold(inputs, 3, padding=1, stride=2).mT.flatten(0, 1).double()
    maps = functional.relu(network.conv(inputs)).flatten(1).double()
    moments = {"conv": patches.T @ patches / len(patches) / 9, "hidden": maps.T @ maps / len(maps)}
    for estimator in ("exact", "empirical"):
        factors = KFAC.compute(tiny.local(network, examples, estimator=estimator)).factors
        held = server()
        held.fisher = FisherSettings(estimator=estimator)
        for name, moment in moments.items():
            assert torch.allclose(factors[name].inputs.double() / factor_scales(held)[name], moment, atol=1e-6), name
