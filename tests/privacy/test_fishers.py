import math

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.dense_fisher import DenseFisher
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import DIAGONAL_AND_KFAC, compute_fisher
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.privacy.fishers import private_fisher, require_private, require_private_fisher
from fedfisher_core.privacy.release import add_noise, add_symmetric_noise, nearest_semidefinite
from fedfisher_core.settings import FisherSettings, PrivacySettings
from tests import tiny
from tests.fisher.reference import SINGLE, relative_error
from tests.fisher.reference import make as make_any
from tests.privacy.networks import generator, make

UNCLIPPED = PrivacySettings(epsilon=1, diagonal_clip=1e12, input_clip=1e12, output_clip=1e12)
CLIPPED = PrivacySettings(epsilon=1, diagonal_clip=0.5, input_clip=0.7, output_clip=0.2)


def noisy(
    network: nn.Module,
    inputs: Tensor,
    settings: PrivacySettings = CLIPPED,
    *,
    noise_multiplier: float = 1.0,
    seed: int = 0,
    approximations: frozenset[Approximation] = DIAGONAL_AND_KFAC,
    memory_limit: int = 64 * 2**20,
) -> Fisher:
    return private_fisher(
        network,
        inputs,
        settings,
        approximations=approximations,
        memory_limit=memory_limit,
        noise_multiplier=noise_multiplier,
        generator=generator(seed),
    )


def tensors(fisher: Fisher) -> dict[str, Tensor]:
    found = dict(fisher.diagonal or {})
    for name, block in (fisher.kfac or {}).items():
        found |= {f"{name}.inputs": block.inputs, f"{name}.outputs": block.outputs}
    return found


@pytest.mark.parametrize("name", SINGLE)
def test_without_clip_and_noise_it_is_the_exact_fisher(name: str) -> None:
    network, inputs = make_any(name, examples=7, dtype=torch.float32)
    expected = tensors(compute_fisher(network, inputs))
    found = tensors(noisy(network, inputs, UNCLIPPED, noise_multiplier=0.0))
    assert list(found) == list(expected)
    for key, tensor in found.items():
        assert tensor.dtype == torch.float32
        assert relative_error(tensor, expected[key]) < 1e-5, key


@pytest.mark.parametrize("spec", [tiny.TINY, tiny.TINY_WITH_BIAS])
def test_a_network_of_a_registered_family_agrees_as_well(spec: object) -> None:
    assert isinstance(spec, type(tiny.TINY))
    network = spec.load(tiny.initial(spec))
    inputs = tiny.examples(30).inputs
    expected = tensors(compute_fisher(network, inputs))
    for key, tensor in tensors(noisy(network, inputs, UNCLIPPED, noise_multiplier=0.0)).items():
        assert relative_error(tensor, expected[key]) < 1e-5, key


@pytest.mark.parametrize("deviation", [0.5, 3.0])
def test_noise_has_the_deviation(deviation: float) -> None:
    clean = torch.full((300, 300), 2.0, dtype=torch.float64)
    noise = add_noise(clean, deviation, generator()) - clean
    assert float(noise.std()) == pytest.approx(deviation, rel=0.01)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02 * deviation)


@pytest.mark.parametrize("deviation", [0.5, 3.0])
def test_symmetric_noise_has_the_deviation_on_and_off_the_diagonal(deviation: float) -> None:
    source = generator()
    clean = torch.eye(30, dtype=torch.float64)
    noise = torch.stack([add_symmetric_noise(clean, deviation, source) - clean for _ in range(400)])
    assert torch.equal(noise, noise.transpose(1, 2))
    rows, columns = torch.triu_indices(30, 30, 1)
    above = noise[:, rows, columns]
    assert float(above.std()) == pytest.approx(deviation / math.sqrt(2), rel=0.01)
    assert float(noise.diagonal(dim1=1, dim2=2).std()) == pytest.approx(deviation, rel=0.03)
    # Elements of the triangle are independent of each other.
    assert float(above.sum(1).std()) == pytest.approx(deviation * math.sqrt(len(rows) / 2), rel=0.15)


@pytest.mark.parametrize(("noise_multiplier", "clip"), [(1.0, 0.5), (4.0, 0.5), (1.0, 5.0)])
def test_the_diagonals_noise_is_of_the_clip_and_the_multiplier(noise_multiplier: float, clip: float) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(200, 50), nn.ReLU(), nn.Linear(50, 3))
    # Zero inputs leave the first layer's weights a Fisher of 0: what is released of them is noise, cut off at 0.
    inputs = torch.zeros(4, 200)
    settings = CLIPPED.model_copy(update={"diagonal_clip": clip})
    found = noisy(network, inputs, settings, noise_multiplier=noise_multiplier).diagonal
    assert found is not None
    released = found["0.weight"]
    deviation = noise_multiplier * clip / 4
    assert float((released == 0).double().mean()) == pytest.approx(0.5, abs=0.02)
    assert float(released.square().mean().sqrt()) == pytest.approx(deviation / math.sqrt(2), rel=0.03)


@pytest.mark.parametrize(("noise_multiplier", "clip"), [(1.0, 0.2), (4.0, 0.2), (1.0, 3.0)])
def test_the_factors_noise_is_of_their_clips_the_multiplier_and_their_number(
    noise_multiplier: float, clip: float
) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(150, 100, bias=False), nn.ReLU(), nn.Linear(100, 3, bias=False))
    examples, classes, layers = 4, 3, 2
    settings = CLIPPED.model_copy(update={"input_clip": clip, "output_clip": clip})
    found = noisy(network, torch.zeros(examples, 150), settings, noise_multiplier=noise_multiplier).kfac
    assert found is not None
    # Zero inputs make A of the first layer pure noise, whose projection keeps half of its square.
    inputs = found["0"].inputs
    deviation = noise_multiplier * clip * 150 / math.sqrt(2) * math.sqrt(2 * layers) * math.sqrt(classes) / examples
    assert float(inputs.square().mean().sqrt()) == pytest.approx(deviation / math.sqrt(2), rel=0.05)
    # Off its diagonal, G of the first layer is 0 as well where no unit is active.
    outputs = found["0"].outputs
    deviation = noise_multiplier * clip / math.sqrt(2) * math.sqrt(2 * layers) / math.sqrt(classes) / examples
    assert float(outputs.square().mean().sqrt()) == pytest.approx(deviation / math.sqrt(2), rel=0.1)


@pytest.mark.parametrize("name", ["linear, bias", "convolutional, no bias"])
def test_what_is_released_is_finite_not_negative_and_symmetric(name: str) -> None:
    network, inputs, _ = make(name, 5)
    inputs[2] *= 1e25
    fisher = noisy(network, inputs, noise_multiplier=30.0)
    assert fisher.diagonal is not None
    assert fisher.kfac is not None
    for tensor in fisher.diagonal.values():
        assert torch.isfinite(tensor).all()
        assert (tensor >= 0).all()
    for block in fisher.kfac.values():
        for factor in (block.inputs, block.outputs):
            assert torch.equal(factor, factor.T)
            values = torch.linalg.eigvalsh(factor.double())
            assert float(values[0]) >= -1e-6 * float(values[-1])
            assert float(values[-1]) > 0


def test_the_projection_is_the_nearest() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(6, 6, dtype=torch.float64)
    matrix = matrix + matrix.T
    nearest = nearest_semidefinite(matrix)
    # Of the nearest point of a cone, what is left is orthogonal to it and lies in the polar cone.
    left = matrix - nearest
    assert float((left * nearest).sum()) == pytest.approx(0, abs=1e-10)
    assert float(torch.linalg.eigvalsh(nearest)[0]) >= -1e-10
    assert float(torch.linalg.eigvalsh(left)[-1]) <= 1e-10


def test_the_same_generator_gives_the_same_to_the_last_bit_and_another_another() -> None:
    network, inputs, _ = make("convolutional, bias", 6)
    first, again, other = (tensors(noisy(network, inputs, seed=seed)) for seed in (0, 0, 1))
    torch.manual_seed(99)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


def test_the_noise_of_a_fisher_does_not_depend_on_its_company() -> None:
    network, inputs, _ = make("linear, bias", 6)
    both = tensors(noisy(network, inputs))
    for approximation in DIAGONAL_AND_KFAC:
        for key, tensor in tensors(noisy(network, inputs, approximations=frozenset({approximation}))).items():
            assert torch.equal(tensor, both[key]), key


def test_a_private_fisher_does_not_depend_on_its_company_where_memory_is_short() -> None:
    network, inputs, _ = make("convolutional, bias", 40)
    network, inputs = network.float(), inputs.float()
    with pytest.raises(InputError, match="allowed: at least") as error:
        noisy(network, inputs, memory_limit=1)
    limit = 2 * int(str(error.value).split()[-1])
    both = tensors(noisy(network, inputs, memory_limit=limit))
    for approximation in DIAGONAL_AND_KFAC:
        alone = noisy(network, inputs, approximations=frozenset({approximation}), memory_limit=limit)
        for key, tensor in tensors(alone).items():
            assert torch.equal(tensor, both[key]), key


def test_the_two_fishers_share_no_noise() -> None:
    network = nn.Sequential(nn.Linear(60, 60, bias=False), nn.ReLU(), nn.Linear(60, 3, bias=False))
    fisher = noisy(network, torch.zeros(2, 60))
    assert fisher.diagonal is not None
    assert fisher.kfac is not None
    pair = torch.stack([fisher.diagonal["0.weight"].flatten(), fisher.kfac["0"].inputs.flatten()])
    assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.05


def test_the_model_leaves_in_the_mode_that_it_had() -> None:
    network, inputs, _ = make("linear, bias", 4)
    network.train()
    noisy(network, inputs)
    assert network.training


def test_a_network_that_is_not_finite_is_named() -> None:
    network, inputs, _ = make("linear, bias", 4)
    with torch.no_grad():
        network.get_parameter("2.weight")[1, 1] = float("nan")
    with pytest.raises(DivergedClientError, match=r"weight '2\.weight' is not finite"):
        noisy(network, inputs)


def test_statistics_without_privacy_are_named() -> None:
    require_private([Weights, DiagonalFisher, KFAC])
    for kind in (DenseFisher, LabelCounts):
        with pytest.raises(InputError, match=f"privacy with statistic '{kind.name}'; allowed: 'weights', 'diag"):
            require_private([Weights, kind])


def test_settings_of_fishers_without_privacy_are_named() -> None:
    for estimator in ("auto", "exact"):
        require_private_fisher(FisherSettings(estimator=estimator))
    with pytest.raises(InputError, match=r"privacy with fisher\.backend='nngeometry'; allowed: 'native'"):
        require_private_fisher(FisherSettings(backend="nngeometry"))
    for estimator in ("truncated", "monte_carlo", "empirical"):
        with pytest.raises(InputError, match=rf"estimator='{estimator}'; allowed: 'auto', 'exact'"):
            require_private_fisher(FisherSettings(estimator=estimator))
