import pytest
import torch
from torch import nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec, model
from fedfisher_core.models.streams import chain, reordered
from tests import tiny


@model("identity_skip")
class IdentitySkip(nn.Module):
    """Layers whose shapes could follow one another, with a skip connection around the second."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.first = nn.Linear(spec.inputs.size, 4, bias=spec.bias)
        self.second = nn.Linear(4, 4, bias=spec.bias)
        self.head = nn.Linear(4, spec.classes, bias=spec.bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.first(inputs.flatten(1)))
        return self.head(functional.relu(self.second(hidden) + hidden))


def test_the_layers_of_a_convolutional_network() -> None:
    layers = chain(ModelSpec("lenet", Images(3, 28, 28), classes=10, bias=True))
    assert [(one.name, one.units, one.inputs, one.places, one.bias) for one in layers] == [
        ("conv1", 6, 3, 25, True),
        ("conv2", 16, 6, 25, True),
        ("fc1", 120, 16, 16, True),
        ("fc2", 84, 120, 1, True),
        ("fc3", 10, 84, 1, True),
    ]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn", "cnn_padded", "ma_echo_cnn", "compact"])
def test_permuted_units_compute_the_same_function(name: str, bias: bool) -> None:
    spec = ModelSpec(name, Images(1, 16, 16), classes=4, bias=bias)
    parameters = tiny.initial(spec)
    generator = torch.Generator().manual_seed(1)
    layers = chain(spec)
    orders = [torch.randperm(layer.units, generator=generator) for layer in layers[:-1]]
    other = reordered(parameters, layers, orders)
    inputs = torch.randn(5, 1, 16, 16, generator=generator)
    assert list(other) == list(parameters)
    assert not torch.equal(other[f"{layers[0].name}.weight"], parameters[f"{layers[0].name}.weight"])
    assert torch.allclose(spec.load(other).eval()(inputs), spec.load(parameters).eval()(inputs), atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "resnet18_tiny_imagenet", "identity_skip"])
def test_skip_connections_are_refused(name: str) -> None:
    with pytest.raises(
        UnsupportedLayerError, match=f"model '{name}': the hidden units around layer .* skip connection"
    ):
        chain(ModelSpec(name, Images(1, 8, 8), classes=3))


def test_one_layer_is_a_chain() -> None:
    (layer,) = chain(tiny.LINEAR)
    assert (layer.units, layer.inputs, layer.places) == (3, 36, 1)
