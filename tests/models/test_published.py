"""Which networks the papers' printed numbers belong to, and what is known of their shapes."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from fedfisher_core.data.layouts import Images
from fedfisher_core.fisher.layers import matrix_layers
from fedfisher_core.models.spec import ModelSpec
from tests import tiny

CIFAR10 = Images(3, 32, 32)


def factor_sizes(spec: ModelSpec) -> list[tuple[int, int]]:
    """Inputs and outputs of each layer, which its two Kronecker factors are as large as."""
    layers = matrix_layers(spec.skeleton()).values()
    return [(layer.weight[0].numel(), len(layer.weight)) for layer in layers]


def compression(sizes: Sequence[tuple[int, int]], quantised: int) -> float:
    """The least s_v, in hundredths, with which a K-FAC upload has at most 16 d bits.

    An (m x m) factor keeps l = floor(m / 2 s_v) singular vectors on either side and values, 32 / s_q bits each
    (Jhunjhunwala et al. 2023, section C.2).
    """
    budget = 16 * sum(inputs * outputs for inputs, outputs in sizes)
    for hundredths in range(100, 2000):
        kept = [(m, 50 * m // hundredths) for pair in sizes for m in pair]
        if sum(32 // quantised * (2 * m * rank + rank) for m, rank in kept) <= budget:
            return hundredths / 100
    raise AssertionError("no s_v below 20 is enough")


@pytest.mark.parametrize(
    ("spec", "published", "decimals"),
    [
        (ModelSpec("mlp", Images(1, 28, 28), classes=10), [2.5, 1.25, 1.0], 2),
        (ModelSpec("cnn_padded", CIFAR10, classes=10), [8.1, 4.1, 2.1], 1),
    ],
    ids=["Table 5, FashionMNIST", "Table 6, CIFAR-10"],
)
def test_the_compression_that_the_workshop_paper_prints_is_of_this_network(
    spec: ModelSpec, published: list[float], decimals: int
) -> None:
    """For s_q = 2, 4 and 8, rounded up as it was printed: rounded down, the upload would be over 16 d bits."""
    found = [compression(factor_sizes(spec), quantised) for quantised in (2, 4, 8)]
    scale = 10**decimals
    assert [math.ceil(round(value * scale, 6)) / scale for value in found] == published


@pytest.mark.parametrize(
    "sizes",
    [
        factor_sizes(ModelSpec("cnn", CIFAR10, classes=10)),
        factor_sizes(ModelSpec("ma_echo_cnn", CIFAR10, classes=10)),
        # Padded, of 3x3; without the layer of 128; and FedMA's VGG-9.
        [(27, 32), (288, 64), (4096, 512), (512, 128), (128, 10)],
        [(75, 32), (800, 64), (4096, 512), (512, 10)],
        [(27, 32), (288, 64), (576, 128), (1152, 128), (1152, 256), (2304, 256), (4096, 512), (512, 512), (512, 10)],
    ],
    ids=["unpadded", "MA-Echo's", "3x3", "no layer of 128", "VGG-9"],
)
def test_other_networks_have_another_compression(sizes: list[tuple[int, int]]) -> None:
    assert math.ceil(round(compression(sizes, 2) * 10, 6)) / 10 != 8.1


def test_the_padded_network_keeps_its_size_up_to_the_pooling() -> None:
    layers = dict(ModelSpec("cnn_padded", CIFAR10, classes=10).skeleton().named_modules())
    assert layers["fc1"].in_features == 64 * 8 * 8
    assert layers["fc2"].weight.shape == (128, 512)


def test_the_fine_tuned_resnet_is_the_plain_one_with_another_stem_and_head() -> None:
    """Of 32x32 pixels, the stem leaves 28x28, and the groups 28, 14, 7 and 4: the authors pool these 4x4 to one."""
    fine, plain = (ModelSpec(name, CIFAR10, classes=43).skeleton() for name in ("resnet18_tiny_imagenet", "resnet18"))
    shapes = {name: tensor.shape for name, tensor in fine.state_dict().items()}
    shared = {name: tensor.shape for name, tensor in plain.state_dict().items() if name.startswith("layer")}
    assert {name: shape for name, shape in shapes.items() if name.startswith("layer")} == shared
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert [shapes[f"{name}.weight"] for name in ("fc", "linear", "final")] == [(1000, 512), (200, 1000), (43, 200)]
    sides = []
    for group in (fine.layer1, fine.layer2, fine.layer3, fine.layer4):
        group.register_forward_hook(lambda module, given, maps: sides.append(maps.shape[-1]))
    with torch.device("meta"):
        fine(torch.empty(1, 3, 32, 32))
    assert sides == [28, 14, 7, 4]


def test_nothing_stands_between_the_last_three_layers_of_the_fine_tuned_resnet() -> None:
    spec = ModelSpec("resnet18_tiny_imagenet", Images(1, 8, 8), classes=3)
    network = spec.load(tiny.initial(spec)).eval()
    seen: list[torch.Tensor] = []
    network.fc.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    logits = network(torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    product = network.final.weight @ network.linear.weight @ network.fc.weight
    torch.testing.assert_close(logits, seen[0] @ product.T)


def test_ma_echo_draws_its_linear_layers_as_the_authors_do() -> None:
    """Glorot's normal; the convolutions as torch does by default, uniform."""
    spec = ModelSpec("ma_echo_cnn", Images(1, 8, 8), classes=10, widths=(8, 16, 512, 400, 100))
    parameters = tiny.initial(spec)
    for name in ("fc1", "fc2", "fc3"):
        weight = parameters[f"{name}.weight"]
        assert weight.std().item() == pytest.approx((2 / sum(weight.shape)) ** 0.5, rel=0.05)
        assert weight.abs().max() > 2.5 * weight.std()
    for name in ("conv1", "conv2", "conv3"):
        weight = parameters[f"{name}.weight"]
        assert weight.abs().max() <= weight[0].numel() ** -0.5


def test_ma_echo_drops_before_it_pools() -> None:
    spec = ModelSpec("ma_echo_cnn", Images(1, 16, 16), classes=3, widths=(2, 3, 4, 5, 6))
    order = [type(module).__name__ for module in spec.skeleton().children()]
    assert order.count("Dropout") == 1
    network = spec.load(tiny.initial(spec)).eval()
    seen: list[tuple[int, ...]] = []
    dropout = next(module for module in network.modules() if type(module).__name__ == "Dropout")
    assert isinstance(dropout, nn.Module)
    dropout.register_forward_pre_hook(lambda module, given: seen.append(tuple(given[0].shape[1:])))
    network(torch.zeros(1, 1, 16, 16))
    assert seen == [(2, 16, 16), (3, 8, 8), (4, 4, 4)]
