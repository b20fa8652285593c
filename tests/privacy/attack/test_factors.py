"""The attack through K-FAC, factor by factor, against sums over dense factors that follow their definition."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.privacy.attack.evidence import Evidence, Knowledge, evidence_of
from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.privacy.attack.likelihoods import kfac as kfac_likelihood
from fedfisher_core.privacy.attack.likelihoods.kfac import Factor
from fedfisher_core.privacy.attack.statistics import KroneckerMoments, Moment, kfac_of
from fedfisher_core.privacy.release import Release
from fedfisher_core.settings import PrivacySettings
from tests.fisher.reference import kfac_by_definition
from tests.tiny import LINEAR, SIZE, TINY, TINY_WITH_BIAS, examples, initial

CLIENT = examples(12, seed=1).inputs
OTHERS = examples(20, seed=2).inputs
AUXILIARY = examples(9, seed=3).inputs
IMAGES = torch.stack([CLIENT, OTHERS[:12]])
# By layer and side, in the order of the network's layers.
COMPARED = {
    Factors.ALL: ["conv.inputs", "conv.outputs", "hidden.inputs", "hidden.outputs", "head.inputs", "head.outputs"],
    Factors.FIRST_INPUTS: ["conv.inputs"],
    Factors.LATER_INPUTS: ["hidden.inputs", "head.inputs"],
    Factors.OUTPUTS: ["conv.outputs", "hidden.outputs", "head.outputs"],
}
SUMMED = pytest.mark.parametrize("factors", list(COMPARED))
SPECS = pytest.mark.parametrize("spec", [TINY, TINY_WITH_BIAS], ids=["plain", "bias"])
# Nothing is clipped, and each side has noise of its own.
NOISY = Release(PrivacySettings(epsilon=1, input_clip=1e6, output_clip=1e3), 0.3, (12, 20, 8))
CLIPPED = Release(PrivacySettings(epsilon=1, input_clip=0.3, output_clip=0.05), 0.3, (12, 20, 8))


def network(spec=TINY) -> nn.Module:
    return spec.load(initial(spec, seed=4)).eval()


def sent(inputs: Tensor, spec=TINY) -> KFAC:
    factors = kfac_by_definition(network(spec), inputs)
    return KFAC({layer: Kronecker(one.inputs.detach(), one.outputs.detach()) for layer, one in factors.items()})


def evidence(factors: Factors, spec=TINY, *, given: KFAC | None = None, release: Release | None = None) -> Evidence:
    known = Knowledge(network(spec), AUXILIARY, 0.3, 0, release=release, factors=factors)
    return evidence_of(sent(CLIENT, spec) if given is None else given, known)


def distance(first: Tensor, second: Tensor) -> float:
    """Add up squared differences, element by element."""
    elements = zip(first.flatten().tolist(), second.flatten().tolist(), strict=True)
    return sum((one - other) ** 2 for one, other in elements)


def size(tensor: Tensor) -> float:
    return distance(tensor, torch.zeros_like(tensor))


def test_every_choice_is_tried_here() -> None:
    assert {*COMPARED, Factors.RELATIVE} == set(Factors)


@SPECS
@SUMMED
def test_a_choice_compares_its_factors_and_no_others(factors: Factors, spec) -> None:
    given, generated = sent(CLIENT, spec).tensors, sent(OTHERS[:12], spec).tensors
    expected = sum(distance(generated[name], given[name]) for name in COMPARED[factors])
    found = evidence(factors, spec)
    scale = sum(size(given[name]) for name in COMPARED[factors])
    assert found.size == pytest.approx(scale, rel=1e-5)
    assert expected > 1e-4 * scale
    assert found.loss(network(spec), IMAGES).tolist() == pytest.approx([0, expected], rel=1e-4, abs=1e-6 * expected)


@SPECS
def test_relative_factors_are_in_units_of_their_own_squared_size(spec) -> None:
    given, generated = sent(CLIENT, spec).tensors, sent(OTHERS[:12], spec).tensors
    expected = sum(distance(generated[name], given[name]) / size(given[name]) for name in given)
    found = evidence(Factors.RELATIVE, spec)
    # One unit a factor.
    assert found.size == pytest.approx(6, rel=1e-6)
    assert found.loss(network(spec), IMAGES).tolist() == pytest.approx([0, expected], rel=1e-4, abs=1e-6 * expected)


@pytest.mark.parametrize("scale", [1e-9, 1e6])
@pytest.mark.parametrize(("side", "apart"), [("inputs", Factors.LATER_INPUTS), ("outputs", Factors.OUTPUTS)])
def test_relative_loss_does_not_change_with_the_scale_of_one_factor_on_both_sides(
    monkeypatch: pytest.MonkeyPatch, side: str, apart: Factors, scale: float
) -> None:
    given, name = sent(CLIENT).tensors, f"hidden.{side}"
    before = {one: evidence(one).loss(network(), IMAGES)[1].item() for one in (Factors.RELATIVE, apart)}

    def scaled_kfac_of(model: nn.Module, images: Tensor) -> dict[str, KroneckerMoments]:
        moments = kfac_of(model, images)
        own = getattr(moments["hidden"], side)
        return moments | {"hidden": replace(moments["hidden"], **{side: Moment(own.vectors, own.scale * scale)})}

    monkeypatch.setattr(kfac_likelihood, "kfac_of", scaled_kfac_of)
    scaled = KFAC.of(given | {name: given[name] * scale})
    after = {one: evidence(one, given=scaled).loss(network(), IMAGES)[1].item() for one in before}
    assert after[Factors.RELATIVE] == pytest.approx(before[Factors.RELATIVE], rel=1e-5)
    # It is the units that make it so: as they are, factors count by their scale.
    assert after[apart] != pytest.approx(before[apart], rel=1e-2)


@pytest.mark.parametrize("factors", list(Factors))
@pytest.mark.parametrize("release", [None, CLIPPED], ids=["plain", "released"])
def test_the_gradient_in_the_images(factors: Factors, release: Release | None) -> None:
    double = network().double()
    given = KFAC.of({name: tensor.double() for name, tensor in sent(CLIENT).tensors.items()})
    known = Knowledge(double, AUXILIARY.double(), 0.3, 0, release=release, factors=factors)
    found = evidence_of(given, known)
    images = OTHERS[:2].unflatten(0, (2, 1)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda images: found.loss(double, images), images)
    (gradient,) = torch.autograd.grad(found.loss(double, images).sum(), images)
    assert gradient.flatten(1).any(1).all()


class Backwards(nn.Module):
    """Two layers that are defined in the reverse of the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.first = nn.Linear(SIZE**2, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(inputs.flatten(1))))


def test_the_first_layer_is_the_one_that_sees_the_pixels() -> None:
    torch.manual_seed(0)
    model = Backwards().eval()
    factors = kfac_by_definition(model, CLIENT)
    given = KFAC({layer: Kronecker(one.inputs.detach(), one.outputs.detach()) for layer, one in factors.items()})
    assert next(iter(given.factors)) == "last"
    for choice, layer in ((Factors.FIRST_INPUTS, "first"), (Factors.LATER_INPUTS, "last")):
        found = evidence_of(given, Knowledge(model, AUXILIARY, 0.3, 0, factors=choice))
        assert found.size == pytest.approx(size(given.factors[layer].inputs), rel=1e-5)


def unit_of_noise(name: str, tensor: Tensor, release: Release) -> float:
    """Deviation of the noise on a factor, up to what all factors have in common, as the mechanism adds it."""
    windows = 9 if name.startswith("conv") else 1
    if name.endswith("inputs"):
        return release.settings.input_clip * windows * len(tensor) * (TINY.classes - 1) ** 0.5
    return release.settings.output_clip / ((TINY.classes - 1) ** 0.5 * windows)


@SPECS
@SUMMED
def test_what_is_chosen_of_released_factors_is_in_units_of_its_noise(factors: Factors, spec) -> None:
    given, generated = sent(CLIENT, spec).tensors, sent(OTHERS[:12], spec).tensors
    units = {name: unit_of_noise(name, tensor, NOISY) ** 2 for name, tensor in given.items()}
    loss = sum(distance(generated[name], given[name]) / units[name] for name in COMPARED[factors])
    scale = sum(size(given[name]) / units[name] for name in COMPARED[factors])
    found = evidence(factors, spec, release=NOISY)
    ratios = (found.loss(network(spec), IMAGES) / found.size).tolist()
    assert ratios == pytest.approx([0, loss / scale], rel=1e-3, abs=1e-6 * loss / scale)


def test_units_of_noise_cancel_in_relative_factors_and_the_clip_stays() -> None:
    unclipped = evidence(Factors.RELATIVE, release=NOISY)
    plain = evidence(Factors.RELATIVE)
    expected = plain.loss(network(), IMAGES)
    assert unclipped.size == pytest.approx(plain.size)
    torch.testing.assert_close(unclipped.loss(network(), IMAGES), expected, rtol=1e-4, atol=1e-5)
    clipped = evidence(Factors.RELATIVE, release=CLIPPED).loss(network(), IMAGES)
    assert clipped[0] > 0.1
    assert clipped[1].item() != pytest.approx(expected[1].item(), rel=0.1)


def test_a_factor_of_zeros_has_no_size_to_be_divided_by() -> None:
    tensors = sent(CLIENT).tensors
    given = KFAC.of(tensors | {"hidden.outputs": torch.zeros_like(tensors["hidden.outputs"])})
    with pytest.raises(InputError, match=r"factor 'hidden.outputs' is 0, and inversion.factors='relative' divides"):
        evidence(Factors.RELATIVE, given=given)
    assert evidence(Factors.OUTPUTS, given=given).size > 0


def test_a_network_of_one_layer_has_no_later_inputs() -> None:
    with pytest.raises(
        InputError,
        match=r"inversion.factors='later_inputs', but the attacked network has 1 layer.*"
        r"allowed: all, first_inputs, outputs, relative",
    ):
        evidence(Factors.LATER_INPUTS, LINEAR)
    assert evidence(Factors.FIRST_INPUTS, LINEAR).size > 0


def test_the_size_of_a_factor_is_its_distance_from_nothing() -> None:
    factor = Factor(torch.tensor([[2.0, 1.0], [1.0, 3.0]]), weight=0.5)
    nothing = Moment(torch.zeros(1, 1, 1, 2, 1), 1.0)
    assert factor.size == pytest.approx(7.5)
    assert factor.distance(nothing).tolist() == pytest.approx([7.5])
