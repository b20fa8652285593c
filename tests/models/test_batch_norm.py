import math

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.spec import ModelSpec, model, parameters_of
from fedfisher_core.settings import TrainSettings

CHANNELS = 3
SHAPES = [(8, CHANNELS), (8, CHANNELS, 5), (4, CHANNELS, 5, 2)]
SPEC = ModelSpec("batch_norm", Images(1, 4, 4), classes=2, bias=True)


@model("batch_norm")
class Network(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(spec.inputs.channels, CHANNELS, kernel_size=3, bias=spec.bias)
        self.norm = BatchNorm(CHANNELS)
        self.head = nn.Linear(CHANNELS * 4, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.norm(self.conv(inputs)).relu()
        return self.head(nn.functional.avg_pool2d(maps, maps.shape[-1] // 2).flatten(1))


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def torchs_own(shape: tuple[int, ...]) -> nn.Module:
    return {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)](CHANNELS).double()


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_torchs_own_in_training_and_in_evaluation(shape: tuple[int, ...]) -> None:
    ours, theirs = BatchNorm(CHANNELS).double(), torchs_own(shape)
    with torch.no_grad():
        for one in (ours, theirs):
            one.weight.copy_(normal(CHANNELS, seed=0))
            one.bias.copy_(normal(CHANNELS, seed=1))
    for seed in range(5):
        inputs = 2 * normal(*shape, seed=10 + seed) + 1
        assert torch.allclose(ours(inputs), theirs(inputs), atol=1e-12)
    assert torch.allclose(ours.mean, theirs.running_mean)
    assert torch.allclose(ours.log_variance.exp() - ours.eps, theirs.running_var)
    inputs = normal(*shape, seed=20)
    assert torch.allclose(ours.eval()(inputs), theirs.eval()(inputs), atol=1e-12)
    assert not torch.allclose(ours(inputs), ours.train()(inputs), atol=0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_in_training_are_torchs_own(shape: tuple[int, ...]) -> None:
    ours, theirs = BatchNorm(CHANNELS).double(), torchs_own(shape)
    inputs = normal(*shape, seed=2).requires_grad_()
    found, expected = (
        torch.autograd.grad(one(inputs).pow(3).sum(), [inputs, one.weight, one.bias]) for one in (ours, theirs)
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


def test_a_batch_with_one_number_a_channel_takes_the_running_statistics() -> None:
    layer, one = BatchNorm(CHANNELS), torch.tensor([[1.0, 2.0, 3.0]])
    assert torch.allclose(layer(one), one, atol=1e-4)
    assert layer.mean.eq(0).all()


def test_channels_that_never_change_stay_finite() -> None:
    layer = BatchNorm(CHANNELS)
    for _ in range(1000):
        layer(torch.ones(4, CHANNELS))
    assert layer.log_variance.tolist() == pytest.approx([math.log(layer.eps)] * CHANNELS, abs=1e-3)
    assert torch.isfinite(layer.eval()(torch.randn(4, CHANNELS))).all()


def test_training_moves_running_statistics_by_the_batches_alone() -> None:
    parameters = SPEC.initialise(torch.Generator().manual_seed(0))
    network = SPEC.load(parameters)
    examples = Examples(normal(20, 1, 4, 4, seed=3).float() + 1, torch.arange(20) % 2)
    settings = TrainSettings(epochs=1, batch_size=20, learning_rate=0.5, momentum=0.9, weight_decay=0.5)
    trained = train(network, examples, settings, generator=torch.Generator().manual_seed(0)).parameters
    seen = nn.functional.conv2d(examples.inputs, parameters["conv.weight"], parameters["conv.bias"])
    variance, mean = torch.var_mean(seen, (0, 2, 3))
    assert torch.allclose(trained["norm.mean"], 0.1 * mean, atol=1e-6)
    assert torch.allclose(trained["norm.log_variance"], (0.9 + 0.1 * variance + 1e-5).log(), atol=1e-5)
    assert not torch.equal(trained["norm.weight"], parameters["norm.weight"])


def test_whatever_a_method_makes_of_the_parameters_is_a_network() -> None:
    merged = {name: -5 * tensor - 3 for name, tensor in SPEC.initialise(torch.Generator()).items()}
    network = SPEC.load(merged).eval()
    assert torch.isfinite(network(torch.randn(2, 1, 4, 4))).all()
    assert list(parameters_of(network)) == list(SPEC.initialise(torch.Generator()))
