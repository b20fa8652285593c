"""Evidence: the squared difference of statistics, nothing where the images are the client's, and none without one."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import Empirical, Exact, MonteCarlo
from fedfisher_core.privacy.attack.evidence import Knowledge, evidence_of, evidence_of_all
from tests.tiny import LINEAR, SIZE, TINY, TINY_WITH_BIAS, examples, initial, local

SHARE = 0.3
CLIENT = examples(12, seed=1).inputs
OTHERS = examples(20, seed=2).inputs
AUXILIARY = examples(9, seed=3).inputs


def network(spec=TINY) -> nn.Module:
    return spec.load(initial(spec, seed=4)).eval()


def knowledge(spec=TINY, **changes: object) -> Knowledge:
    return Knowledge(**{"network": network(spec), "auxiliary": AUXILIARY, "share": SHARE, "target": 0, **changes})


def kfac(inputs: Tensor = CLIENT, spec=TINY) -> KFAC:
    return KFAC.compute(local(network(spec), Examples(inputs, torch.zeros(len(inputs)).long())))


def moments(inputs: Tensor, directions: int = SIZE**2) -> InputMoments:
    client = local(network(), Examples(inputs, torch.zeros(len(inputs)).long()))
    return InputMoments.compute(client, directions=directions)


def diagonal(inputs: Tensor, spec=TINY) -> dict[str, Tensor]:
    fisher = compute_fisher(network(spec), inputs).diagonal
    assert fisher is not None
    return fisher


def summed(first: Tensor, second: Tensor, spec=TINY) -> DiagonalFisher:
    own, other = diagonal(first, spec), diagonal(second, spec)
    return DiagonalFisher({name: SHARE * own[name] + (1 - SHARE) * other[name] for name in own})


def distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """Add up squared differences, element by element."""
    return sum(
        (one - other) ** 2
        for name in first
        for one, other in zip(first[name].flatten().tolist(), second[name].flatten().tolist(), strict=True)
    )


@pytest.mark.parametrize("spec", [TINY, TINY_WITH_BIAS], ids=["plain", "bias"])
def test_the_clients_images_fit_its_kfac_and_no_others_do(spec) -> None:
    images = torch.stack([CLIENT, OTHERS[:12], CLIENT.flip(0)])
    losses = evidence_of(kfac(spec=spec), knowledge(spec)).loss(network(spec), images)
    expected = distance(kfac(OTHERS[:12], spec).tensors, kfac(spec=spec).tensors)
    assert expected > 0.1
    assert losses.tolist() == pytest.approx([0, expected, 0], rel=1e-4, abs=1e-6 * expected)


@pytest.mark.parametrize("spec", [TINY, TINY_WITH_BIAS], ids=["plain", "bias"])
def test_the_clients_images_fit_the_summed_diagonal_if_the_others_are_as_estimated(spec) -> None:
    images = torch.stack([CLIENT, OTHERS[:12]])
    total = summed(CLIENT, AUXILIARY, spec)
    losses = evidence_of(total, knowledge(spec)).loss(network(spec), images)
    expected = distance(summed(OTHERS[:12], AUXILIARY, spec).tensors, total.tensors)
    assert losses.tolist() == pytest.approx([0, expected], rel=1e-4, abs=1e-6 * expected)


def test_what_the_others_really_have_is_left_in_the_difference() -> None:
    total = summed(CLIENT, OTHERS)
    loss = evidence_of(total, knowledge()).loss(network(), CLIENT[None])
    assert loss.item() == pytest.approx(distance(summed(CLIENT, AUXILIARY).tensors, total.tensors), rel=1e-4)


@pytest.mark.parametrize(
    "statistic", [kfac(), summed(CLIENT, OTHERS), moments(CLIENT)], ids=lambda statistic: statistic.name
)
def test_the_gradient_in_the_images(statistic: Statistic) -> None:
    double = network().double()
    tensors = {name: tensor.double() for name, tensor in statistic.tensors.items()}
    evidence = evidence_of(statistic.of(tensors), knowledge(network=double, auxiliary=AUXILIARY.double()))
    images = OTHERS[:2].unflatten(0, (2, 1)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda images: evidence.loss(double, images), images)


def test_restarts_are_judged_by_themselves() -> None:
    evidence = evidence_of(kfac(), knowledge())
    images = OTHERS[:8].unflatten(0, (2, 4)).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(evidence.loss(network(), images)[1], images)
    assert not gradient[0].any()
    assert gradient[1].any()


def test_factors_of_the_monte_carlo_estimator_are_brought_to_scale() -> None:
    statistic = kfac()
    directions = TINY.classes**0.5
    rescaled = KFAC.of(
        {
            name: tensor / directions if name.endswith(".inputs") else tensor * directions
            for name, tensor in statistic.tensors.items()
        }
    )
    evidence = evidence_of(rescaled, knowledge(estimator=MonteCarlo(1)))
    wrong = evidence_of(rescaled, knowledge(estimator=Exact()))
    assert evidence.loss(network(), CLIENT[None]).item() < 1e-6 * wrong.loss(network(), CLIENT[None]).item()


def test_without_a_statistic_nothing_is_held_against_images() -> None:
    evidence = evidence_of_all([], knowledge())
    assert evidence.loss(network(), OTHERS.unflatten(0, (4, 5))).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("directions", [2, SIZE**2])
def test_images_are_held_against_mean_and_covariance_of_the_client(directions: int) -> None:
    given = moments(CLIENT, directions)
    images = torch.stack([CLIENT, OTHERS[:12], CLIENT.flip(0)])
    sent = {name: tensor.double() for name, tensor in given.tensors.items()}
    covariance = sent["directions"].T @ sent["directions"] + sent["deviations"].square().diag()
    expected = []
    for one in images.flatten(2).double():
        difference = torch.cov(one.T, correction=0) - covariance
        expected.append(((one.mean(0) - sent["mean"]).square().sum() + difference.square().sum()).item())
    evidence = evidence_of(given, knowledge())
    scale = max(expected)
    assert evidence.loss(network(), images).tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5 * scale)
    assert evidence.size == pytest.approx((sent["mean"].square().sum() + covariance.square().sum()).item(), rel=1e-4)
    if directions == SIZE**2:
        assert expected[0] < 1e-6 * expected[1]


def test_images_of_the_target_are_held_against_the_moments_of_its_class() -> None:
    both = Examples(torch.cat([CLIENT, OTHERS]), torch.cat([torch.full((12,), 2), torch.zeros(20)]).long())
    sent = ClassMoments.compute(local(network(), both), directions=40, frequencies=SIZE)
    alone, images = moments(CLIENT), torch.stack([CLIENT, OTHERS[:12]])
    found, expected = (evidence_of(one, knowledge(target=2)).loss(network(), images).tolist() for one in (sent, alone))
    # Directions enough for all that twelve and twenty images have: nothing is left to what the classes share.
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-4 * expected[1])
    assert expected[0] < 1e-6 * expected[1]


def test_moments_of_low_frequencies_say_nothing_of_others() -> None:
    given = ClassMoments.compute(
        local(network(), Examples(CLIENT, torch.full((12,), 2))), directions=40, frequencies=SIZE - 2
    )
    low = LowFrequencies((1, SIZE, SIZE), SIZE - 2)
    smooth = low.fill(low.keep(CLIENT.flatten(1))).unflatten(1, (1, SIZE, SIZE))
    own, other = evidence_of(given, knowledge(target=2)).loss(network(), torch.stack([smooth, OTHERS[:12]])).tolist()
    assert own < 1e-6 * other


def test_moments_of_classes_say_nothing_of_a_class_that_is_left_out() -> None:
    given = ClassMoments.compute(local(network(), Examples(CLIENT, torch.zeros(12).long())), directions=3)
    with pytest.raises(InputError, match="'class_moments' says nothing of class 2, the target"):
        evidence_of(given, knowledge(target=2))


def test_several_statistics_have_the_same_say() -> None:
    images = OTHERS.unflatten(0, (4, 5))
    given = [kfac(), moments(CLIENT, directions=3)]
    apart = [evidence_of(one, knowledge()) for one in given]
    together = evidence_of_all(given, knowledge())
    expected = sum(one.loss(network(), images) / one.size for one in apart)
    assert torch.allclose(together.loss(network(), images) / together.size, expected)


@pytest.mark.parametrize("statistic", [Gram, Weights])
def test_statistics_without_evidence_are_refused_by_name(statistic: type[Statistic]) -> None:
    with pytest.raises(
        InputError,
        match=f"'{statistic.name}': no attack uses it.*'class_moments', 'diagonal_fisher', 'input_moments', 'kfac'",
    ):
        evidence_of(statistic.of({}), knowledge())


@pytest.mark.parametrize("statistic", [kfac(), summed(CLIENT, OTHERS)], ids=lambda statistic: statistic.name)
def test_a_statistic_of_another_network_is_refused(statistic: Statistic) -> None:
    with pytest.raises(InputError, match=f"'{statistic.name}' holds conv.* allowed for the attacked network: head"):
        evidence_of(statistic, knowledge(LINEAR))


def test_the_size_is_what_images_without_any_statistic_would_differ_by() -> None:
    statistic, zeros = kfac(), {name: torch.zeros_like(tensor) for name, tensor in kfac().tensors.items()}
    assert evidence_of(statistic, knowledge()).size == pytest.approx(distance(statistic.tensors, zeros), rel=1e-5)
    own = {name: SHARE * tensor for name, tensor in diagonal(CLIENT).items()}
    nothing = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
    total = summed(CLIENT, AUXILIARY)
    assert evidence_of(total, knowledge()).size == pytest.approx(distance(own, nothing), rel=1e-4)


def test_a_statistic_of_zeros_is_refused() -> None:
    with pytest.raises(InputError, match="'kfac' leaves 0"):
        evidence_of(KFAC.of({name: torch.zeros_like(tensor) for name, tensor in kfac().tensors.items()}), knowledge())


def test_the_empirical_estimator_is_refused() -> None:
    with pytest.raises(InputError, match="'empirical' needs the labels"):
        evidence_of(kfac(), knowledge(estimator=Empirical()))


@pytest.mark.parametrize("share", [0.0, 1.2])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(InputError, match=f"share={share}"):
        evidence_of(summed(CLIENT, OTHERS), knowledge(share=share))
