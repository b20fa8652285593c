import pytest
import torch
from torch import nn

from fedfisher_core.errors import InputError, UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec, model, models, parameters_of
from tests import tiny

FAMILIES = ("cnn", "compact", "lenet", "mlp", "resnet18")


def size_of(spec: ModelSpec) -> int:
    return sum(parameter.numel() for parameter in spec.skeleton().parameters())


@pytest.mark.parametrize(
    ("spec", "parameters"),
    [
        (ModelSpec("lenet", channels=1, size=28, classes=10), 44_190),
        (ModelSpec("compact", channels=1, size=28, classes=10), 2_630),
        (ModelSpec("cnn", channels=3, size=32, classes=10), 939_616),
        (ModelSpec("mlp", channels=1, size=28, classes=10), 414_600),
        # 64 * 27; then per group 4 or 3 convolutions of 3x3 and a shortcut of 1x1; 512 * 10.
        (
            ModelSpec("resnet18", channels=3, size=32, classes=10),
            64 * 27
            + 4 * 64 * 64 * 9
            + sum(c * c // 2 * 9 + 3 * c * c * 9 + c * c // 2 for c in (128, 256, 512))
            + 512 * 10,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ModelSpec) else "",
)
def test_networks_have_the_size_that_is_known_of_them(spec: ModelSpec, parameters: int) -> None:
    assert size_of(spec) == parameters


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("lenet", 6 + 16 + 120 + 84 + 10),
        ("cnn", 32 + 64 + 512 + 128 + 10),
        ("mlp", 400 + 200 + 100 + 10),
        ("resnet18", 64 + 4 * 64 + 5 * (128 + 256 + 512) + 10),
    ],
)
def test_a_bias_adds_one_parameter_an_output(name: str, outputs: int) -> None:
    plain = ModelSpec(name, channels=3, size=32, classes=10)
    biased = ModelSpec(name, channels=3, size=32, classes=10, bias=True)
    assert size_of(biased) - size_of(plain) == outputs
    assert not any(key.endswith("bias") for key in plain.skeleton().state_dict())


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("channels", "size", "classes"), [(1, 28, 10), (3, 32, 100), (3, 20, 43), (2, 16, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_images_of_any_kind_get_one_logit_a_class(
    name: str, channels: int, size: int, classes: int, bias: bool
) -> None:
    spec = ModelSpec(name, channels=channels, size=size, classes=classes, bias=bias)
    with torch.device("meta"):
        logits = spec.skeleton()(torch.empty(3, channels, size, size))
    assert logits.shape == (3, classes)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_logits_depend_on_every_parameter(name: str) -> None:
    spec = ModelSpec(name, channels=1, size=16, classes=4, bias=True)
    network = spec.load(tiny.initial(spec))
    inputs = torch.randn(8, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    network(inputs).square().sum().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", ["lenet", "cnn"])
@pytest.mark.parametrize("size", [15, 4, 1])
def test_images_that_vanish_in_the_pooling_are_refused(name: str, size: int) -> None:
    message = f"model '{name}' needs images of at least 16x16 pixels; they have {size}"
    with pytest.raises(InputError, match=message):
        ModelSpec(name, channels=1, size=size, classes=10).skeleton()


@pytest.mark.parametrize(
    ("name", "widths"), [("mlp", (5, 7, 3)), ("lenet", (2, 3, 5, 4)), ("cnn", (2, 3, 5, 4)), ("compact", (2, 3))]
)
def test_hidden_layers_take_the_widths_that_are_asked_for(name: str, widths: tuple[int, ...]) -> None:
    spec = ModelSpec(name, channels=1, size=16, classes=4, widths=widths)
    network = spec.load(tiny.initial(spec))
    assert network(torch.zeros(2, 1, 16, 16)).shape == (2, 4)
    assert [tensor.shape[0] for tensor in tiny.initial(spec).values()] == [*widths, 4]


@pytest.mark.parametrize(
    ("name", "widths", "allowed"),
    [("mlp", (5, 7), "3 positive numbers"), ("lenet", (1, 2, 3, 0), "4 positive numbers"), ("resnet18", (64,), "none")],
)
def test_widths_that_do_not_fit_are_refused(name: str, widths: tuple[int, ...], allowed: str) -> None:
    with pytest.raises(InputError, match=rf"model '{name}': widths=.*allowed: {allowed}"):
        ModelSpec(name, channels=1, size=16, classes=4, widths=widths).skeleton()


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match="unknown model 'lenett'; did you mean 'lenet'"):
        ModelSpec("lenett", channels=1, size=28, classes=10).build()


def test_the_families_are_listed() -> None:
    assert set(FAMILIES) <= set(models)


def test_initial_weights_are_those_that_torch_draws() -> None:
    spec = ModelSpec("mlp", channels=1, size=28, classes=10)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        layers = [nn.Linear(a, b, bias=False) for a, b in ((784, 400), (400, 200), (200, 100), (100, 10))]
    drawn = spec.initialise(torch.Generator().manual_seed(11))
    assert list(drawn) == ["fc1.weight", "fc2.weight", "fc3.weight", "fc4.weight"]
    for layer, weight in zip(layers, drawn.values(), strict=True):
        assert torch.equal(layer.weight.detach(), weight)


def test_biases_of_convolutions_are_drawn_as_torch_does() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        layers: list[nn.Conv2d | nn.Linear] = [nn.Conv2d(1, 2, 3), nn.Linear(18, 5), nn.Linear(5, 3)]
    drawn = list(tiny.TINY_WITH_BIAS.initialise(torch.Generator().manual_seed(11)).values())
    expected = [tensor for layer in layers for tensor in (layer.weight.detach(), layer.bias.detach())]
    assert all(torch.equal(one, other) for one, other in zip(drawn, expected, strict=True))


def test_initial_weights_depend_on_their_generator_alone() -> None:
    torch.manual_seed(1)
    first = tiny.initial(seed=3)
    torch.manual_seed(2)
    again, other = tiny.initial(seed=3), tiny.initial(seed=4)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


@model("normed")
class Normed(nn.Module):
    """A network with parameters whose initial values torch does not draw."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, spec.channels)
        self.head = nn.Linear(spec.channels * spec.size**2, spec.classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(inputs).flatten(1))


@pytest.mark.parametrize(("name", "layer"), [("normed", "'norm' is a GroupNorm"), ("normalised", "'norm' is a BatchN")])
def test_a_layer_that_cannot_be_initialised_is_refused(name: str, layer: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=f"model '{name}': layer {layer}"):
        ModelSpec(name, channels=1, size=6, classes=3).initialise(torch.Generator())


def test_a_loaded_network_owns_its_weights() -> None:
    given = tiny.initial()
    before = {name: tensor.clone() for name, tensor in given.items()}
    network = tiny.TINY.load(given)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    for name, tensor in given.items():
        assert torch.equal(tensor, before[name])
        assert torch.equal(parameters_of(network)[name], tensor + 1)
        assert not tensor.requires_grad


def test_copied_parameters_do_not_follow_their_network() -> None:
    network = tiny.TINY.load(tiny.initial())
    copied = parameters_of(network)
    expected = {name: tensor.clone() for name, tensor in copied.items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert all(torch.equal(copied[name], expected[name]) for name in copied)


@pytest.mark.parametrize(
    "names", [["conv.weight", "head.weight"], ["conv.weight", "hidden.weight", "head.weight", "x.weight"]]
)
def test_weights_of_another_network_are_refused(names: list[str]) -> None:
    given = {name: torch.zeros(1) for name in names}
    with pytest.raises(RuntimeError, match=r"(Missing|Unexpected) key"):
        tiny.TINY.load(given)
