import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError, MemoryLimitError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.privacy.sums import ClippedSums, clipped_sums
from fedfisher_core.settings import PrivacySettings
from tests.fisher.reference import hessians, jacobians
from tests.privacy.networks import NETWORKS, make

BOTH = frozenset({Approximation.DIAGONAL, Approximation.KFAC})
MIB = 2**20
# So small that most examples are clipped.
SETTINGS = PrivacySettings(epsilon=1, diagonal_clip=0.05, input_clip=0.3, output_clip=0.02)


def sums_of(
    network: nn.Module, inputs: Tensor, settings: PrivacySettings = SETTINGS, *, memory_limit: int = 64 * MIB
) -> ClippedSums:
    return clipped_sums(network, inputs, settings, approximations=BOTH, memory_limit=memory_limit)


def differences(one: ClippedSums, other: ClippedSums) -> tuple[float, list[float]]:
    """By how much the diagonal's sums differ in all, and each factor's, as multiples of their clips."""
    squares = sum(float((one.squares[name] - other.squares[name]).square().sum()) for name in one.squares)
    moments = [
        float((left.total - right.total).norm()) / left.clip
        for name in one.moments
        for left, right in zip(one.moments[name], other.moments[name], strict=True)
    ]
    return squares**0.5 / SETTINGS.diagonal_clip, moments


@pytest.mark.drawn(8)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e12, 1e30, float("inf"), float("nan")])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_example_changes_a_sum_by_more_than_its_clip(name: str, size: float) -> None:
    network, inputs, _ = make(name, 9)
    with_it = inputs.clone()
    with_it[4] *= size
    without = torch.cat([inputs[:4], inputs[5:]])
    squares, moments = differences(sums_of(network, with_it), sums_of(network, without))
    assert squares <= 1 + 1e-5
    assert max(moments) <= 1 + 1e-5


def test_the_bounds_are_reached() -> None:
    network, inputs, _ = make("linear, bias", 9)
    with_it = inputs.clone()
    with_it[4] *= 30
    unbounded = PrivacySettings(epsilon=1, diagonal_clip=1e9, input_clip=1e9, output_clip=1e9)
    without = torch.cat([inputs[:4], inputs[5:]])
    squares, moments = differences(sums_of(network, with_it), sums_of(network, without))
    assert squares == pytest.approx(1, rel=1e-4)
    assert max(moments) == pytest.approx(1, rel=1e-4)
    squares, _ = differences(sums_of(network, with_it, unbounded), sums_of(network, without, unbounded))
    assert squares > 10


@pytest.mark.parametrize("name", NETWORKS)
def test_the_diagonal_is_the_sum_of_clipped_squares(name: str) -> None:
    network, inputs, _ = make(name, 6)
    network.double()
    inputs = inputs.double()
    j, h = jacobians(network, inputs), hessians(network, inputs)
    squares = torch.einsum("nck,ncd,ndk->nk", j, h, j)
    norms = squares.norm(dim=1)
    clip = float(norms.median())
    expected = (squares * (clip / norms).clamp(max=1)[:, None]).sum(0)
    found = sums_of(network, inputs, SETTINGS.model_copy(update={"diagonal_clip": clip})).squares
    parts = []
    for layer, matrix in found.items():
        module = network.get_submodule(layer)
        bias = module.bias is not None
        parts += [matrix[:, : matrix.shape[1] - bias].flatten()] + ([matrix[:, -1]] if bias else [])
    assert torch.allclose(torch.cat(parts), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_factor_is_the_sum_of_clipped_moments(name: str) -> None:
    network, inputs, _ = make(name, 6)
    unclipped = PrivacySettings(epsilon=1, diagonal_clip=1e9, input_clip=1e9, output_clip=1e9)
    alone = [sums_of(network, example[None], unclipped).moments for example in inputs]
    together = sums_of(network, inputs).moments
    for layer, pair in together.items():
        for which, moments in enumerate(pair):
            each = torch.stack([one[layer][which].total for one in alone])
            norms = each.flatten(1).norm(dim=1)
            expected = (each * (moments.clip / norms).clamp(max=1)[:, None, None]).sum(0)
            assert torch.allclose(moments.total, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))


def test_the_clips_of_factors_follow_from_the_layers_shape_alone() -> None:
    network, inputs, _ = make("convolutional, bias", 4)
    first = sums_of(network, inputs).moments
    assert list(first) == list(fisher_layers(network))
    # 2 channels of a 1x1 window in 7x6 places; 2 channels of a 3x2 window in 5x5; 12 features. Each with a bias.
    assert [pair[0].clip for pair in first.values()] == pytest.approx([0.3 * 42 * 3, 0.3 * 25 * 13, 0.3 * 13])
    assert [pair[1].clip for pair in first.values()] == [0.02] * 3
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(7)
    second = sums_of(network, 5 * inputs).moments
    assert [(a.clip, b.clip) for a, b in first.values()] == [(a.clip, b.clip) for a, b in second.values()]


@pytest.mark.parametrize("name", NETWORKS)
def test_chunks_change_nothing_but_rounding(name: str) -> None:
    network, inputs, _ = make(name, 40)
    with pytest.raises(InputError, match=r"memory_limit=1 bytes is too small .*allowed: at least \d+") as refusal:
        sums_of(network, inputs, memory_limit=1)
    least = int(str(refusal.value).rsplit(" ", 1)[1])
    squares, moments = differences(sums_of(network, inputs, memory_limit=least), sums_of(network, inputs))
    assert squares < 1e-4
    assert max(moments) < 1e-4


def test_what_is_not_asked_for_is_not_summed() -> None:
    network, inputs, _ = make("linear, bias", 4)
    for wanted in BOTH:
        sums = clipped_sums(network, inputs, SETTINGS, approximations={wanted}, memory_limit=MIB)
        assert bool(sums.squares) == (wanted is Approximation.DIAGONAL)
        assert bool(sums.moments) == (wanted is Approximation.KFAC)


def test_unusable_arguments_are_named() -> None:
    network, inputs, _ = make("linear, bias", 4)
    with pytest.raises(InputError, match=r"approximations=\['dense'\] with privacy; allowed: .*diagonal, kfac"):
        clipped_sums(network, inputs, SETTINGS, approximations={Approximation.DENSE}, memory_limit=MIB)
    with pytest.raises(InputError, match="no examples"):
        sums_of(network, inputs[:0])
    with pytest.raises(InputError, match="has 1 output; allowed: at least 2"):
        sums_of(nn.Sequential(nn.Linear(4, 1)), inputs)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_least_memory_that_is_named_is_the_least_that_is_allowed(name: str) -> None:
    network, inputs, _ = make(name, 2)
    with pytest.raises(MemoryLimitError) as refusal:
        sums_of(network, inputs, memory_limit=1)
    sums_of(network, inputs, memory_limit=refusal.value.needed)
    with pytest.raises(MemoryLimitError):
        sums_of(network, inputs, memory_limit=refusal.value.needed - 1)
