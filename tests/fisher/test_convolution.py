import pytest
import torch
from torch import nn

from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.convolution import Geometry, PatchMoment, RowMoment, patch_moment
from fedfisher_core.fisher.engine import compute_fisher

from .reference import dense_fisher, relative_error

LAYERS = {
    "plain": nn.Conv2d(2, 1, 3, bias=False),
    "bias": nn.Conv2d(2, 1, 3),
    "uneven kernel": nn.Conv2d(2, 1, (2, 4)),
    "one pixel": nn.Conv2d(2, 1, 1),
    "padding": nn.Conv2d(2, 1, 3, padding=(2, 1)),
    "stride": nn.Conv2d(2, 1, 3, stride=(3, 2)),
    "dilation": nn.Conv2d(2, 1, 3, dilation=(2, 3)),
    "all": nn.Conv2d(2, 1, (3, 2), padding=(1, 2), stride=(2, 3), dilation=(2, 1)),
    "same": nn.Conv2d(2, 1, (3, 2), padding="same", dilation=(2, 1)),
    "valid": nn.Conv2d(2, 1, 3, padding="valid"),
    "reflect": nn.Conv2d(2, 1, 3, padding=(1, 2), padding_mode="reflect"),
    "circular": nn.Conv2d(2, 1, 3, padding=1, padding_mode="circular"),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_patches_times_the_weight_are_the_convolution(layer: nn.Conv2d) -> None:
    inputs = torch.randn(4, 2, 9, 8)
    expected = layer(inputs)
    geometry = Geometry.of(layer, inputs.shape, expected.shape)
    patches = geometry.patches(geometry.pad(inputs))
    weight = layer.weight.flatten(1)
    if layer.bias is not None:
        weight = torch.cat([weight, layer.bias[:, None]], dim=1)
    found = torch.einsum("oc,cnw->now", weight, patches).view(expected.shape)
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_rows_and_patches_have_the_same_second_moment(layer: nn.Conv2d) -> None:
    torch.manual_seed(0)
    like = torch.zeros(0, dtype=torch.float64)
    inputs = torch.randn(6, 2, 9, 8, dtype=torch.float64)
    geometry = Geometry.of(layer, inputs.shape, layer(inputs.float()).shape)
    from_patches, from_rows = PatchMoment(geometry, like=like), RowMoment(geometry, like=like)
    patches = geometry.patches(geometry.pad(inputs)).flatten(1)
    for moment in (from_patches, from_rows):
        # Flushes in the middle and none at the end, as in a long run.
        for chunk in (inputs[:2], inputs[2:5], inputs[5:]):
            moment.flush()
            padded = geometry.pad(chunk)
            moment.add(padded if isinstance(moment, RowMoment) else geometry.patches(padded))
        assert relative_error(moment.value(), patches @ patches.T) < 1e-14


@pytest.mark.parametrize(
    ("layer", "size", "chosen"),
    [
        (nn.Conv2d(6, 16, 5), 12, RowMoment),
        (nn.Conv2d(64, 64, 1), 8, PatchMoment),
        (nn.Conv2d(64, 64, 3, stride=2), 32, PatchMoment),
    ],
)
def test_cheaper_way_is_chosen(layer: nn.Conv2d, size: int, chosen: type) -> None:
    inputs = torch.zeros(1, layer.in_channels, size, size)
    geometry = Geometry.of(layer, inputs.shape, layer(inputs).shape)
    assert isinstance(patch_moment(geometry, like=inputs), chosen)


@pytest.mark.parametrize("name", ["same", "reflect", "circular"])
def test_fisher_of_uncommon_paddings(name: str) -> None:
    torch.manual_seed(0)
    options = {"padding": "same"} if name == "same" else {"padding": 1, "padding_mode": name}
    model = nn.Sequential(nn.Conv2d(1, 2, 3, **options), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)).double()
    inputs = torch.randn(3, 1, 3, 4, dtype=torch.float64)
    fisher = compute_fisher(model, inputs, approximations={Approximation.DENSE})
    assert relative_error(fisher.dense, dense_fisher(model, inputs)) < 1e-12
