import pytest
import torch
from torch import nn

from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import (
    Exact,
    MonteCarlo,
    categorical_root,
    output_directions,
    sampling_noise,
)

from .reference import dense_fisher, flat, make, relative_error


def covariance(p: torch.Tensor) -> torch.Tensor:
    return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_root_times_its_transpose_is_the_covariance(classes: int) -> None:
    p = torch.rand(20, classes, dtype=torch.float64).softmax(dim=1)
    root = categorical_root(p)
    assert root.shape == (classes - 1, 20, classes)
    assert relative_error(torch.einsum("kni,knj->nij", root, root), covariance(p)) < 1e-14


@pytest.mark.parametrize(
    "logits",
    [
        [40.0, 0.0, -30.0],
        [0.0, 40.0, -30.0],
        [-30.0, 0.0, 40.0],
        [0.0, 500.0, 0.0],
        [500.0, 0.0, 0.0],
        [0.0, 0.0, 500.0],
        [60.0, 60.0, -40.0],
    ],
)
def test_root_keeps_every_digit_of_confident_probabilities(logits: list[float]) -> None:
    p = torch.tensor([logits]).softmax(dim=1)
    root = categorical_root(p).double()
    found = torch.einsum("kni,knj->nij", root, root)[0]
    d = p.double()[0]
    # 1 - p_c as the sum of the other probabilities: the difference would lose what this test is about.
    variances = torch.stack([d[c] * d[[k for k in range(3) if k != c]].sum() for c in range(3)])
    assert torch.allclose(found.diagonal(), variances, rtol=1e-5, atol=1e-40)
    scale = (variances[:, None] * variances[None, :]).sqrt()
    covariances = -d[:, None] * d[None, :]
    assert ((found - covariances).abs() <= 1e-6 * scale + 1e-40).fill_diagonal_(True).all()


def test_saturated_network_matches_double_precision() -> None:
    """Logits of ten thousands whose differences reach from 0 to far beyond what the softmax can tell from 1."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 4, bias=False))
    with torch.no_grad():
        # Small integers times a power of two, so that single precision computes the logits exactly.
        model[0].weight.copy_(torch.randint(-2, 3, (5, 4)))
        model[2].weight.copy_(2048 + torch.randint(-3, 4, (4, 5)))
    inputs = torch.randint(-2, 3, (200, 4)).float()
    probabilities = model(inputs).softmax(dim=1)
    assert model(inputs).abs().max() > 1e4
    assert (probabilities == 1).any()
    assert ((probabilities > 0.2) & (probabilities < 0.8)).any()
    fisher = compute_fisher(model, inputs, approximations=set(Approximation))
    expected = dense_fisher(model.double(), inputs.double())
    # Weights of 2048 + a few lose ten bits when the classes' gradients, which sum to zero, are combined.
    assert relative_error(fisher.dense.double(), expected) < 1e-4
    assert relative_error(flat(fisher.diagonal).double(), expected.diagonal()) < 1e-4


@pytest.mark.parametrize("network", ["linear, bias", "padding, bias"])
def test_scaled_up_network_stays_finite(network: str) -> None:
    model, inputs = make(network, examples=50, dtype=torch.float32)
    with torch.no_grad():
        model[-1].weight *= 1e4
    fisher = compute_fisher(model, inputs)
    assert all(torch.isfinite(d).all() and (d >= 0).all() for d in fisher.diagonal.values())


def test_monte_carlo_directions_have_the_hessian_as_second_moment() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]])
    samples = 40_000
    noise = sampling_noise(2, samples, torch.Generator().manual_seed(0))
    found = output_directions(logits, estimator=MonteCarlo(samples), noise=noise)
    exact = output_directions(logits, estimator=Exact())
    moments = [torch.einsum("kni,knj->nij", d, d) for d in (found, exact)]
    assert torch.allclose(*moments, atol=0.02)


def test_monte_carlo_never_draws_an_impossible_class() -> None:
    logits = torch.tensor([[-300.0, 1.0, 0.0, -300.0]])
    noise = torch.tensor([[0.0, 0.5, 1 - 2.0**-53]], dtype=torch.float64)
    found = output_directions(logits, estimator=MonteCarlo(3), noise=noise)
    assert (found[:, 0, 0] == 0).all()
    assert (found[:, 0, 3] == 0).all()


def test_monte_carlo_needs_samples() -> None:
    with pytest.raises(InputError, match="samples=0"):
        MonteCarlo(0)
