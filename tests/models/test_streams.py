import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec, model
from fedfisher_core.models.streams import StreamLayer, chain, reordered, stream_units, streams
from tests import arranged, tiny


def spec_of(name: str, *, size: int = 16, bias: bool = True) -> ModelSpec:
    return ModelSpec(name, Images(1, size, size), classes=4, bias=bias)


@model("gated_skip")
class GatedSkip(nn.Module):
    """Units that two layers add to, of which one reads them, and that a third multiplies."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.first = nn.Linear(spec.inputs.size, 4, bias=spec.bias)
        self.second = nn.Linear(4, 4, bias=spec.bias)
        self.gate = nn.Linear(spec.inputs.size, 4, bias=spec.bias)
        self.head = nn.Linear(4, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        flat = inputs.flatten(1)
        hidden = functional.relu(self.first(flat))
        return self.head((functional.relu(self.second(hidden)) + hidden) * self.gate(flat).sigmoid())


@model("tied_outputs")
class TiedOutputs(nn.Module):
    """Hidden units that are added to the outputs, so that they can't move."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.first = nn.Linear(spec.inputs.size, spec.classes, bias=spec.bias)
        self.head = nn.Linear(spec.classes, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.first(inputs.flatten(1)))
        return self.head(hidden) + hidden


class Refused(nn.Module):
    """Two layers."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(spec.inputs.channels, 4, kernel_size=3, padding=1)
        self.more = nn.Conv2d(4, 4, kernel_size=3, padding=1)
        self.head = nn.Linear(4, spec.classes)

    def finish(self, maps: Tensor) -> Tensor:
        return self.head(maps.mean((2, 3)))


@model("used_twice")
class UsedTwice(Refused):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.finish(self.more(self.more(self.conv(inputs))))


@model("unused")
class Unused(Refused):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.finish(self.conv(inputs))


@model("ordered")
class Ordered(Refused):
    def forward(self, inputs: Tensor) -> Tensor:
        return self.finish(self.more(self.conv(inputs).cumsum(1)))


@model("concatenated")
class Concatenated(Refused):
    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.conv(inputs)
        return self.head(torch.cat([maps[:, :2], self.more(maps)[:, 2:]], dim=1).mean((2, 3)))


@model("branching")
class Branching(Refused):
    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.conv(inputs)
        return self.finish(self.more(maps) if maps.sum() > 0 else maps)


@model("grouped")
class Grouped(Refused):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.more = nn.Conv2d(4, 4, kernel_size=3, padding=1, groups=2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.finish(self.more(self.conv(inputs)))


@pytest.mark.parametrize("name", ["tiny", "mlp", "lenet", "cnn", "cnn_padded", "ma_echo_cnn", "compact", "linear"])
def test_layers_that_follow_one_another_are_the_chain_with_a_stream_between_two(name: str) -> None:
    expected = [
        StreamLayer(
            one.name,
            one.units,
            one.inputs,
            one.places,
            one.bias if name not in ("tiny", "linear") else True,
            reads=index - 1 if index else None,
            writes=index,
        )
        for index, one in enumerate(chain(spec_of(name)))
    ]
    found = streams(spec_of(name))
    assert list(found[:-1]) == expected[:-1]
    assert found[-1].writes is None
    assert (found[-1].name, found[-1].reads) == (expected[-1].name, expected[-1].reads)


def test_the_streams_of_a_residual_network() -> None:
    layers = streams(spec_of("resnet18", size=8))
    writers: dict[int | None, list[str]] = {}
    for layer in layers:
        writers.setdefault(layer.writes, []).append(layer.name)
    assert writers[0] == ["conv1", "layer1.0.conv2", "layer1.1.conv2"]
    assert ["layer2.0.conv2", "layer2.0.shortcut", "layer2.1.conv2"] in writers.values()
    assert ["layer2.1.conv1"] in writers.values()
    assert writers[None] == ["linear"]
    assert sorted(stream_units(layers)) == 3 * [64] + 3 * [128] + 3 * [256] + 3 * [512]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["tiny", "lenet", "compact", "ma_echo_cnn", "resnet18", "gated_skip", "tied_outputs"])
def test_reordered_units_compute_the_same_function(name: str, bias: bool) -> None:
    spec = spec_of(name, bias=bias)
    parameters = tiny.initial(spec)
    generator = torch.Generator().manual_seed(1)
    layers = streams(spec)
    other = reordered(parameters, layers, [torch.randperm(n, generator=generator) for n in stream_units(layers)])
    inputs = torch.randn(5, 1, 16, 16, generator=generator)
    assert list(other) == list(parameters)
    changed = any(not torch.equal(other[key], tensor) for key, tensor in parameters.items())
    assert changed == (name != "tied_outputs")
    assert torch.allclose(spec.load(other).eval()(inputs), spec.load(parameters).eval()(inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("used_twice", "each layer must run exactly once"),
        ("unused", "each layer must run exactly once"),
        ("ordered", "its function depends on the order of its hidden units"),
        ("concatenated", "its function depends on the order of its hidden units"),
        ("branching", "its operations depend on its inputs"),
        ("grouped", "layer 'more' looks at 2 numbers of 4 units"),
        ("normalised", "layer 'norm' has type BatchNorm2d"),
    ],
)
def test_networks_whose_units_are_not_alike_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=f"model '{name}': {reason}"):
        streams(spec_of(name))


def test_a_layer_that_draws_its_own_weights_has_no_stream() -> None:
    with pytest.raises(
        UnsupportedLayerError, match="model 'bag': layer 'embedding' has type Embedding; allowed: Linear"
    ):
        streams(ModelSpec("bag", arranged.SEQUENCES, classes=3))


@pytest.mark.parametrize(
    "spec",
    [
        ModelSpec("mlp", arranged.NUMBERS, classes=3, bias=True, widths=(5, 4, 3)),
        ModelSpec("lenet", Images(1, 16, 23), classes=3, bias=True),
        ModelSpec("places", arranged.NUMBERS, classes=3, bias=True),
        ModelSpec("one_hot", arranged.SEQUENCES, classes=3),
    ],
    ids=lambda spec: spec.name,
)
def test_units_of_networks_on_other_inputs_are_reordered(spec: ModelSpec) -> None:
    parameters, layers = tiny.initial(spec), streams(spec)
    other = reordered(parameters, layers, [torch.arange(n).roll(1) for n in stream_units(layers)])
    inputs = spec.inputs.drawn(4, torch.Generator().manual_seed(1))
    assert torch.allclose(spec.load(other)(inputs), spec.load(parameters)(inputs), atol=1e-5)
