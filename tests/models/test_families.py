import pytest
import torch

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec, models, parameters_of
from tests import tiny

FAMILIES = (
    "cnn",
    "cnn_padded",
    "compact",
    "efficientnet_lite0",
    "lenet",
    "linear",
    "ma_echo_cnn",
    "mlp",
    "mobilenet_v2",
    "resnet18",
    "resnet18_batch_norm",
    "resnet18_tiny_imagenet",
)
# Per group 4 or 3 convolutions of 3x3, and a shortcut of 1x1 in all but the first.
# Channels after all convolutions, the shortcuts among them, each with four numbers where it is normalised.
CHANNELS = 64 + 4 * 64 + 5 * (128 + 256 + 512)
RESIDUAL_BLOCKS = 4 * 64 * 64 * 9 + sum(c * c // 2 * 9 + 3 * c * c * 9 + c * c // 2 for c in (128, 256, 512))


def size_of(spec: ModelSpec) -> int:
    return sum(parameter.numel() for parameter in spec.skeleton().parameters())


@pytest.mark.parametrize(
    ("spec", "parameters"),
    [
        (ModelSpec("lenet", Images(1, 28, 28), classes=10), 44_190),
        (ModelSpec("compact", Images(1, 28, 28), classes=10), 2_630),
        (ModelSpec("cnn", Images(3, 32, 32), classes=10), 939_616),
        (ModelSpec("cnn_padded", Images(3, 32, 32), classes=10), 2_217_568),
        (ModelSpec("ma_echo_cnn", Images(3, 32, 32), classes=10), 4_971_368),
        (ModelSpec("mlp", Images(1, 28, 28), classes=10), 414_600),
        (ModelSpec("linear", Images(1, 28, 28), classes=10), 7_840),
        # torchvision's before its classifier, a mean and a variance for each of 17,056 channels, and the head.
        (ModelSpec("mobilenet_v2", Images(3, 32, 32), classes=10), 2_223_872 + 2 * 17_056 + 1280 * 10),
        # As published with 1,000 classes, and a mean and a variance for each of 21,008 channels.
        (ModelSpec("efficientnet_lite0", Images(3, 32, 32), classes=1000, bias=True), 4_652_008 + 2 * 21_008),
        (ModelSpec("resnet18", Images(3, 32, 32), classes=10), 64 * 27 + RESIDUAL_BLOCKS + 512 * 10),
        (
            ModelSpec("resnet18_batch_norm", Images(3, 32, 32), classes=10),
            64 * 27 + RESIDUAL_BLOCKS + 512 * 10 + 4 * CHANNELS,
        ),
        (
            ModelSpec("resnet18_tiny_imagenet", Images(3, 32, 32), classes=43),
            64 * 3 * 7 * 7 + RESIDUAL_BLOCKS + 512 * 1000 + 1000 * 200 + 200 * 43,
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
        ("cnn_padded", 32 + 64 + 512 + 128 + 10),
        ("ma_echo_cnn", 64 + 128 + 256 + 1000 + 500 + 10),
        ("mlp", 400 + 200 + 100 + 10),
        ("linear", 10),
        ("resnet18", CHANNELS + 10),
        ("resnet18_tiny_imagenet", CHANNELS + 1000 + 200 + 10),
    ],
)
def test_a_bias_adds_one_parameter_an_output(name: str, outputs: int) -> None:
    plain = ModelSpec(name, Images(3, 32, 32), classes=10)
    biased = ModelSpec(name, Images(3, 32, 32), classes=10, bias=True)
    assert size_of(biased) - size_of(plain) == outputs
    assert not any(key.endswith("bias") for key in plain.skeleton().state_dict())


@pytest.mark.drawn(24)
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("channels", "size", "classes"), [(1, 28, 10), (3, 32, 100), (3, 20, 43), (2, 16, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_images_of_any_kind_get_one_logit_a_class(
    name: str, channels: int, size: int, classes: int, bias: bool
) -> None:
    spec = ModelSpec(name, Images(channels, size, size), classes=classes, bias=bias)
    with torch.device("meta"):
        logits = spec.skeleton().eval()(torch.empty(3, channels, size, size))
    assert logits.shape == (3, classes)


@pytest.mark.parametrize("name", FAMILIES)
def test_images_need_not_be_square(name: str) -> None:
    spec = ModelSpec(name, Images(3, 16, 37), classes=5)
    inputs = spec.inputs.drawn(2, torch.Generator().manual_seed(0)).requires_grad_()
    logits = spec.load(tiny.initial(spec)).eval()(inputs)
    assert logits.shape == (2, 5)
    logits.square().sum().backward()
    # All but what the pooling cuts off at the right is seen.
    assert inputs.grad is not None
    assert (inputs.grad[..., :36] != 0).any(dim=(0, 1, 2)).all()


def test_softmax_regression_is_the_head_of_given_features() -> None:
    spec = ModelSpec("linear", Vectors(13), classes=3, bias=True)
    parameters = tiny.initial(spec)
    inputs = torch.randn(4, 13)
    expected = inputs @ parameters["head.weight"].T + parameters["head.bias"]
    torch.testing.assert_close(spec.load(parameters)(inputs), expected)
    with pytest.raises(InputError, match=r"model 'linear': widths=\(5,\); it has no hidden layer: allowed: none"):
        ModelSpec("linear", Vectors(13), classes=3, widths=(5,)).skeleton()


def test_a_fully_connected_network_takes_numbers() -> None:
    spec = ModelSpec("mlp", Vectors(13), classes=3, widths=(7, 6, 5))
    assert spec.load(tiny.initial(spec))(torch.randn(4, 13)).shape == (4, 3)
    assert size_of(spec) == 13 * 7 + 7 * 6 + 6 * 5 + 5 * 3


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("lenet", Vectors(13), "takes images; the data has 13 numbers"),
        ("compact", Tokens(80, 90), "takes images; the data has 80 tokens of 90"),
        ("efficientnet_lite0", Vectors(13), "takes images; the data has 13 numbers"),
        ("mobilenet_v2", Vectors(13), "takes images; the data has 13 numbers"),
        ("resnet18", Vectors(13), "takes images; the data has 13 numbers"),
        ("mlp", Tokens(80, 90), "takes images and numbers; the data has 80 tokens of 90"),
        ("linear", Tokens(80, 90), "takes images and numbers; the data has 80 tokens of 90"),
        ("gru", Vectors(13), "takes tokens; the data has 13 numbers"),
        ("transformer", Images(1, 28, 28), "takes tokens; the data has 1 x 28 x 28"),
        ("cnn", Images(1, 40, 15), "needs images of at least 16x16 pixels; they have 40x15"),
        ("cnn_padded", Images(1, 40, 3), "needs images of at least 4x4 pixels; they have 40x3"),
        ("ma_echo_cnn", Images(1, 7, 40), "needs images of at least 8x8 pixels; they have 7x40"),
        ("ma_echo_cnn", Tokens(80, 90), "takes images; the data has 80 tokens of 90"),
        ("resnet18_tiny_imagenet", Images(1, 4, 9), "needs images of at least 5x5 pixels; they have 4x9"),
        ("resnet18_tiny_imagenet", Vectors(13), "takes images; the data has 13 numbers"),
    ],
)
def test_examples_that_a_family_cannot_take_are_refused(name: str, inputs: Layout, message: str) -> None:
    with pytest.raises(InputError, match=f"model '{name}' {message}"):
        ModelSpec(name, inputs, classes=3).skeleton()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_logits_depend_on_every_parameter(name: str) -> None:
    spec = ModelSpec(name, Images(1, 16, 16), classes=4, bias=True)
    network = spec.load(tiny.initial(spec)).eval().requires_grad_(True)
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
        ModelSpec(name, Images(1, size, size), classes=10).skeleton()


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("mlp", (5, 7, 3)),
        ("lenet", (2, 3, 5, 4)),
        ("cnn", (2, 3, 5, 4)),
        ("cnn_padded", (2, 3, 5, 4)),
        ("ma_echo_cnn", (2, 3, 2, 5, 4)),
        ("compact", (2, 3)),
    ],
)
def test_hidden_layers_take_the_widths_that_are_asked_for(name: str, widths: tuple[int, ...]) -> None:
    spec = ModelSpec(name, Images(1, 16, 16), classes=4, widths=widths)
    network = spec.load(tiny.initial(spec))
    assert network.eval()(torch.zeros(2, 1, 16, 16)).shape == (2, 4)
    assert [tensor.shape[0] for tensor in tiny.initial(spec).values()] == [*widths, 4]


@pytest.mark.parametrize(
    ("name", "widths", "allowed"),
    [
        ("mlp", (5, 7), "3 positive numbers"),
        ("lenet", (1, 2, 3, 0), "4 positive numbers"),
        ("efficientnet_lite0", (64,), "none"),
        ("mobilenet_v2", (64,), "none"),
        ("resnet18", (64,), "none"),
        ("resnet18_batch_norm", (64,), "none"),
        ("resnet18_tiny_imagenet", (64,), "none"),
    ],
)
def test_widths_that_do_not_fit_are_refused(name: str, widths: tuple[int, ...], allowed: str) -> None:
    with pytest.raises(InputError, match=rf"model '{name}': widths=.*allowed: {allowed}"):
        ModelSpec(name, Images(1, 16, 16), classes=4, widths=widths).skeleton()


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match="unknown model 'lenett'; did you mean 'lenet'"):
        ModelSpec("lenett", Images(1, 28, 28), classes=10).build()


def test_the_families_are_listed() -> None:
    assert {*FAMILIES, "gru", "transformer"} <= set(models)


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
