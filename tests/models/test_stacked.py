"""Stacked networks, compared with each by itself."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec, model
from fedfisher_core.models.stacked import StackedConv2d, require_stackable, stack
from tests import tiny

COLOURED = Images(3, 32, 32)
NETWORKS = 3
STACKABLE = [
    *((name, COLOURED) for name in ("linear", "mlp", "compact", "lenet", "cnn", "cnn_padded", "resnet18")),
    ("tiny", tiny.TINY.inputs),
    ("mlp", Vectors(13)),
    ("strided_groups", tiny.TINY.inputs),
    ("row_by_row", tiny.TINY.inputs),
]


@model("strided_groups")
class Grouped(nn.Module):
    """Convolutions with groups, strides and dilation, of which one pads to the same size."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(spec.inputs.shape[0], 4, kernel_size=3, padding="same", bias=spec.bias),
            nn.ReLU(),
            nn.Conv2d(4, 6, kernel_size=2, groups=2, stride=2, dilation=2, bias=spec.bias),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, spec.classes, bias=spec.bias),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


@model("row_by_row")
class Windowed(nn.Module):
    """A linear layer that sees each row of an image by itself."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        height, width = spec.inputs.shape[1:]
        self.rows = nn.Linear(width, 2, bias=spec.bias)
        self.head = nn.Linear(2 * height, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(functional.relu(self.rows(inputs)).flatten(1))


@model("reading_weights")
class Reading(nn.Module):
    """A network that reads the weights of its layer itself."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs.flatten(1), self.head.weight, self.head.bias)


@model("reflecting")
class Mirroring(nn.Module):
    """A convolution that pads by reflection."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(spec.inputs.shape[0], spec.classes, kernel_size=3, padding=1, padding_mode="reflect")

    def forward(self, inputs: Tensor) -> Tensor:
        return self.conv(inputs).mean((2, 3))


@model("behind_dropout")
class Forgetful(nn.Module):
    """A linear layer behind torch's own dropout."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.drop = nn.Dropout()
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.drop(inputs.flatten(1)))


@model("less_its_mean")
class Centred(nn.Module):
    """A linear layer whose inputs have the mean of their batch taken off."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1) - inputs.flatten(1).mean(0))


@model("running_total")
class Summing(nn.Module):
    """A linear layer whose outputs add up over the examples of a batch, each with those before it."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1)).cumsum(0)


@model("of_a_constant")
class Constant(nn.Module):
    """A network that convolves an image of its own."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, spec.classes, kernel_size=8)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((1, 2, 3))[:, None] * self.conv(torch.ones(1, 1, 8, 8)).flatten(1)


@model("frozen_first")
class Frozen(nn.Module):
    """Two linear layers, of which the first is not trained."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.first = nn.Linear(spec.inputs.size, 3).requires_grad_(False)
        self.head = nn.Linear(3, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.first(inputs.flatten(1)))


@model("one_for_all")
class Mixing(nn.Module):
    """A network that gives one row of outputs for all examples."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1)).mean(0, keepdim=True)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("name", "inputs"), STACKABLE)
def test_outputs_and_gradients_are_those_of_each_network_by_itself(name: str, inputs: Layout, bias: bool) -> None:
    spec = ModelSpec(name, inputs, classes=3, bias=bias)
    require_stackable(spec)
    starts = [tiny.initial(spec, seed=seed) for seed in range(NETWORKS)]
    stacked = stack(spec, {name: torch.stack([one[name] for one in starts]) for name in starts[0]})
    images = torch.randn(NETWORKS, 4, *inputs.shape, generator=torch.Generator().manual_seed(0))
    outputs = stacked(images.flatten(0, 1)).unflatten(0, (NETWORKS, -1))
    gradients = torch.autograd.grad(outputs.square().sum(), list(stacked.parameters()))
    for number, start in enumerate(starts):
        network = spec.load(start)
        own = network(images[number])
        torch.testing.assert_close(outputs[number], own, rtol=1e-5, atol=1e-5)
        for (name, weight), gradient in zip(network.named_parameters(), gradients, strict=True):
            (expected,) = torch.autograd.grad(own.square().sum(), weight, retain_graph=True)
            torch.testing.assert_close(gradient[number], expected, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_have_the_same_maps_as_groups_of_one_call(bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(4, 6, kernel_size=3, groups=2, stride=2, padding=1)
    weight = torch.randn(NETWORKS, *layer.weight.shape, generator=generator)
    stacked = StackedConv2d(layer, weight, torch.randn(NETWORKS, 6, generator=generator) if bias else None)
    images = torch.randn(NETWORKS * 5, 4, 8, 7, generator=generator)
    torch.testing.assert_close(stacked.as_groups(images), stacked(images), rtol=1e-5, atol=1e-5)


def test_weights_are_not_copied() -> None:
    starts = {name: tensor.expand(2, *tensor.shape).clone() for name, tensor in tiny.initial(tiny.TINY).items()}
    stacked = stack(tiny.TINY, starts)
    assert {name: weight.data_ptr() for name, weight in stacked.named_parameters()} == {
        name: weight.data_ptr() for name, weight in starts.items()
    }


@pytest.mark.parametrize(
    ("name", "inputs", "reason"),
    [
        ("ma_echo_cnn", COLOURED, r"layer 'drop\w*' has type Dropout"),
        ("resnet18_batch_norm", COLOURED, "has type BatchNorm"),
        ("gru", Tokens(7, 11), "has type Embedding"),
        ("reflecting", COLOURED, "layer 'conv' has type Conv2d"),
        ("behind_dropout", COLOURED, "depend on chance or on other examples"),
        ("less_its_mean", COLOURED, "depend on chance or on other examples"),
        ("running_total", COLOURED, "depend on chance or on other examples"),
        ("of_a_constant", COLOURED, "can't be computed side by side"),
        ("frozen_first", COLOURED, "layer 'first' has type Linear.*neither of them frozen"),
        ("reading_weights", COLOURED, "can't be computed side by side"),
        ("one_for_all", COLOURED, r"outputs of shape \(1, 3\)"),
    ],
)
def test_what_can_t_be_side_by_side_is_refused_by_name(name: str, inputs: Layout, reason: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=f"^model '{name}'.*{reason}"):
        require_stackable(ModelSpec(name, inputs, classes=3))
