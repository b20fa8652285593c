"""Evidence of statistics that were released with differential privacy: clipped image by image, with noise."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.data.tensors import Examples
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import Exact, nominal_directions
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.privacy.accountant import Noise
from fedfisher_core.privacy.attack.evidence import Evidence, Knowledge, evidence_of
from fedfisher_core.privacy.attack.likelihoods.diagonal_fisher import rectified_mean
from fedfisher_core.privacy.fishers import PrivateLocal, private_fisher
from fedfisher_core.privacy.release import Release
from fedfisher_core.settings import PrivacySettings
from tests.tiny import CLASSES, LINEAR, SIZE, TINY, TINY_WITH_BIAS, examples, initial, local

CLIPPED = PrivacySettings(epsilon=1, diagonal_clip=0.5, input_clip=0.7, output_clip=0.2, input_moments_clip=1.5)
TIGHT = PrivacySettings(epsilon=1, input_clip=0.1, output_clip=0.01, input_moments_clip=0.3)
UNCLIPPED = PrivacySettings(epsilon=1, diagonal_clip=1e6, input_clip=1e6, output_clip=1e6, input_moments_clip=1e6)
COUNTS = (12, 20, 8)
SHARE = 12 / 40
CLIENT = examples(12, seed=1).inputs
OTHERS = examples(20, seed=2).inputs
AUXILIARY = examples(9, seed=3).inputs
IMAGES = torch.stack([CLIENT, OTHERS[:12]])
SPECS = pytest.mark.parametrize("spec", [TINY, TINY_WITH_BIAS], ids=["plain", "bias"])


def network(spec=TINY) -> nn.Module:
    return spec.load(initial(spec, seed=4)).eval()


def released(model: nn.Module, inputs: Tensor, settings: PrivacySettings, multiplier: float, seed: int = 0) -> KFAC:
    fisher = private_fisher(
        model,
        inputs,
        settings,
        approximations=frozenset({Approximation.KFAC}),
        noise_multiplier=multiplier,
        memory_limit=2**26,
        generator=torch.Generator().manual_seed(seed),
    )
    assert fisher.kfac is not None
    return KFAC(fisher.kfac)


def released_moments(
    inputs: Tensor, settings: PrivacySettings, multiplier: float, seed: int = 0, *, directions: int = SIZE**2
) -> InputMoments:
    plain = local(network(), Examples(inputs, torch.zeros(len(inputs)).long()))
    shared = {**vars(plain), "generator": torch.Generator().manual_seed(seed)}
    noise = Noise(training=1.0, release=multiplier, epsilon=1.0)
    return PrivateLocal(**shared, privacy=settings, noise=noise).compute(InputMoments, {"directions": directions})


def evidence(
    statistic: Statistic, model: nn.Module, settings: PrivacySettings | None, multiplier: float = 0.3
) -> Evidence:
    release = None if settings is None else Release(settings, multiplier, COUNTS)
    return evidence_of(statistic, Knowledge(model, AUXILIARY, SHARE, 0, release=release))


def clipped(tensor: Tensor, norm: Tensor, limit: float) -> Tensor:
    return tensor * min(1.0, limit / max(norm.item(), 1e-30))


def clipped_factors(model: nn.Module, images: Tensor, settings: PrivacySettings) -> dict[str, Kronecker]:
    """Average factors over images, one image at a time."""
    scale = nominal_directions(Exact(), TINY.classes) ** 0.5
    sums: dict[str, list[Tensor]] = {}
    for image in images:
        fisher = compute_fisher(model, image[None]).kfac
        assert fisher is not None
        for layer, block in fisher.items():
            windows = 9 if layer == "conv" else 1
            inputs, outputs = block.inputs / scale, block.outputs * scale * windows
            inputs = clipped(inputs, inputs.norm(), settings.input_clip * windows * len(inputs))
            outputs = clipped(outputs, outputs.norm(), settings.output_clip)
            parts = sums.setdefault(layer, [torch.zeros_like(inputs), torch.zeros_like(outputs)])
            parts[0] += inputs * scale / len(images)
            parts[1] += outputs / (scale * windows * len(images))
    return {layer: Kronecker(*parts) for layer, parts in sums.items()}


def deviation(layer: str, side: int, columns: int, settings: PrivacySettings, multiplier: float) -> float:
    """Of the noise on the diagonal of a factor, as the mechanism adds it: six factors share it."""
    scale, windows = nominal_directions(Exact(), TINY.classes) ** 0.5, 9 if layer == "conv" else 1
    clip, factor = (
        (settings.input_clip * windows * columns, scale) if side == 0 else (settings.output_clip, 1 / (scale * windows))
    )
    return multiplier * clip * 6**0.5 * factor / COUNTS[0]


@SPECS
def test_factors_are_compared_after_the_clip_and_in_units_of_their_noise(spec) -> None:
    model = network(spec)
    received = released(model, CLIENT, CLIPPED, 0.3)
    pairs = {layer: (block.inputs, block.outputs) for layer, block in received.factors.items()}
    losses, size = [], 0.0
    for images in IMAGES:
        loss = 0.0
        for layer, block in clipped_factors(model, images, CLIPPED).items():
            for side, generated in enumerate((block.inputs, block.outputs)):
                noise = deviation(layer, side, len(block.inputs), CLIPPED, 0.3)
                loss += ((generated - pairs[layer][side]) / noise).square().sum().item()
                size += (pairs[layer][side] / noise).square().sum().item() / len(IMAGES)
        losses.append(loss)
    found = evidence(received, model, CLIPPED)
    assert (found.loss(model, IMAGES) / found.size).tolist() == pytest.approx([x / size for x in losses], rel=1e-3)
    # The clips bite: without them, the same images are elsewhere.
    free = evidence(received, model, UNCLIPPED)
    assert (free.loss(model, IMAGES) / free.size).tolist() != pytest.approx([x / size for x in losses], rel=0.1)


def clipped_diagonal(model: nn.Module, images: Tensor, limit: float) -> dict[str, Tensor]:
    """Average squared derivatives over images, one image at a time."""
    found: dict[str, Tensor] = {}
    for image in images:
        fisher = compute_fisher(model, image[None]).diagonal
        assert fisher is not None
        norm = torch.cat([tensor.flatten() for tensor in fisher.values()]).norm()
        for name, tensor in fisher.items():
            found[name] = found.get(name, 0) + clipped(tensor, norm, limit) / len(images)
    return found


@SPECS
def test_the_summed_diagonal_is_compared_after_clip_noise_and_cut(spec) -> None:
    model, limit, multiplier = network(spec), 0.02, 0.3
    settings = CLIPPED.model_copy(update={"diagonal_clip": limit})
    received = DiagonalFisher(clipped_diagonal(model, OTHERS, limit))
    auxiliary = clipped_diagonal(model, AUXILIARY, limit)
    losses = []
    for images in IMAGES:
        loss = 0.0
        for name, own in clipped_diagonal(model, images, limit).items():
            expected = sum(
                count / 40 * rectified_mean(mean, multiplier * limit / count)
                for count, mean in zip(COUNTS, (own, auxiliary[name], auxiliary[name]), strict=True)
            )
            loss += (expected - received.tensors[name]).square().sum().item()
        losses.append(loss)
    found = evidence(received, model, settings, multiplier).loss(model, IMAGES)
    assert found.tolist() == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.5, 0.2), (0.1, 2.0)])
def test_the_mean_after_the_cut_is_that_of_draws(mean: float, deviation: float) -> None:
    drawn = mean + deviation * torch.randn(10**6, generator=torch.Generator().manual_seed(0))
    expected = drawn.clamp(min=0).mean().item()
    assert rectified_mean(torch.tensor(mean), deviation).item() == pytest.approx(expected, rel=5e-3)


@SPECS
def test_of_the_diagonal_without_noise_and_clip_it_is_the_evidence_without_privacy(spec) -> None:
    model = network(spec)
    statistic = DiagonalFisher({name: 1.3 * tensor for name, tensor in clipped_diagonal(model, OTHERS, 1e6).items()})
    plain, private = (evidence(statistic, model, settings, 0.0) for settings in (None, UNCLIPPED))
    torch.testing.assert_close(private.loss(model, IMAGES), plain.loss(model, IMAGES), rtol=1e-4, atol=1e-6)
    assert private.size == pytest.approx(plain.size, rel=1e-4)


def test_of_factors_with_equal_noise_and_without_clip_it_is_the_evidence_without_privacy() -> None:
    model = network(LINEAR)
    # The deviations are clip columns scale and clip / scale, with scale^2 the number of directions.
    equal = 1e6 * SIZE**2 * nominal_directions(Exact(), CLASSES)
    settings = UNCLIPPED.model_copy(update={"output_clip": equal})
    statistic = released(model, CLIENT, settings, 0.0)
    plain, private = (evidence(statistic, model, known) for known in (None, settings))
    expected, found = (one.loss(model, IMAGES) / one.size for one in (plain, private))
    assert expected[1] > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_the_clients_images_are_told_from_others_where_evidence_without_the_clip_fails() -> None:
    model, right = network(TINY_WITH_BIAS), {"plain": 0, "released": 0}
    for seed in range(20):
        own, other = examples(12, seed=seed).inputs, 0.5 * examples(12, seed=100 + seed).inputs
        received = released(model, own, TIGHT, 0.02, seed)
        for name, known in (("plain", None), ("released", TIGHT)):
            losses = evidence(received, model, known).loss(model, torch.stack([own, other]))
            right[name] += int(losses[0] < losses[1])
    assert right["released"] >= 19
    assert right["plain"] <= 10


@pytest.mark.parametrize("directions", [2, SIZE**2])
def test_moments_are_compared_after_the_clip_and_in_units_of_their_noise(directions: int) -> None:
    multiplier, square = 0.3, CLIPPED.input_moments_clip * SIZE**2
    received = released_moments(CLIENT, CLIPPED, multiplier, directions=directions)
    sent = {name: tensor.double() for name, tensor in received.tensors.items()}
    covariance = sent["directions"].T @ sent["directions"] + sent["deviations"].square().diag()
    given = [sent["mean"], covariance + torch.outer(sent["mean"], sent["mean"])]
    # Of the means over 12 images, as the mechanism adds it: on every element, and on the diagonal.
    noise = [multiplier * 2**0.5 * clip / COUNTS[0] for clip in (square**0.5, square)]
    losses = []
    for images in IMAGES:
        flat = [clipped(one, one.norm(), square**0.5).flatten().double() for one in images]
        made = [sum(flat) / len(flat), sum(torch.outer(one, one) for one in flat) / len(flat)]
        losses.append(sum(((a - b) / c).square().sum().item() for a, b, c in zip(made, given, noise, strict=True)))
    size = sum((one / deviation).square().sum().item() for one, deviation in zip(given, noise, strict=True))
    model = network()
    found, free = (evidence(received, model, settings, multiplier) for settings in (CLIPPED, None))
    assert (found.loss(model, IMAGES) / found.size).tolist() == pytest.approx([x / size for x in losses], rel=1e-3)
    assert (free.loss(model, IMAGES) / free.size).tolist() != pytest.approx([x / size for x in losses], rel=0.1)


def test_images_of_the_client_fit_moments_without_noise_exactly_and_no_others_do() -> None:
    model, received = network(), released_moments(CLIENT, CLIPPED, 0.0)
    found = evidence(received, model, CLIPPED, 0.0)
    own, others = (found.loss(model, IMAGES) / found.size).tolist()
    assert own < 1e-5
    assert others > 0.1


def test_the_clients_images_are_told_by_moments_where_evidence_without_the_clip_fails() -> None:
    model, right = network(), {"plain": 0, "released": 0}
    for seed in range(20):
        own, other = examples(12, seed=seed).inputs, 0.5 * examples(12, seed=100 + seed).inputs
        received = released_moments(own, TIGHT, 0.02, seed)
        for name, known in (("plain", None), ("released", TIGHT)):
            losses = evidence(received, model, known).loss(model, torch.stack([own, other]))
            right[name] += int(losses[0] < losses[1])
    assert right["released"] >= 19
    assert right["plain"] <= 10


@pytest.mark.parametrize("kind", [KFAC, DiagonalFisher, InputMoments])
def test_the_gradient_in_the_images(kind: type[Statistic]) -> None:
    model = network().double()
    tensors = {
        KFAC: released(model, CLIENT.double(), CLIPPED, 0.3).tensors,
        DiagonalFisher: clipped_diagonal(model, OTHERS.double(), 0.5),
        InputMoments: released_moments(CLIENT, CLIPPED, 0.3).tensors,
    }[kind]
    settings = CLIPPED.model_copy(update={"diagonal_clip": 0.02})
    known = Knowledge(model, AUXILIARY.double(), SHARE, 0, release=Release(settings, 0.3, COUNTS))
    found = evidence_of(kind.of({name: tensor.double() for name, tensor in tensors.items()}), known)
    images = OTHERS[:2].unflatten(0, (2, 1)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda images: found.loss(model, images), images)


def test_a_black_image_has_a_gradient() -> None:
    model = network()
    images = torch.zeros(1, 2, 1, 6, 6, requires_grad=True)
    for statistic in (
        released(model, CLIENT, CLIPPED, 0.3),
        released_moments(CLIENT, CLIPPED, 0.3),
        DiagonalFisher(clipped_diagonal(model, OTHERS, 0.5)),
    ):
        found = evidence(statistic, model, CLIPPED)
        (gradient,) = torch.autograd.grad(found.loss(model, images).sum(), images)
        assert torch.isfinite(gradient).all()
