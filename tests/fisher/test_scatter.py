"""How far drawn directions put a Fisher off: in closed form, by enumeration, and as it is seen."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import (
    Empirical,
    Estimator,
    Exact,
    MonteCarlo,
    Truncated,
    drawn_directions,
    draws_directions,
    leading_root,
)
from fedfisher_core.fisher.truncation import Scatter, variances

from .reference import dense_fisher, flat, relative_error

CLASSES = 7


def probabilities(examples: int, *, sharpness: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (sharpness * torch.randn(examples, CLASSES, generator=generator, dtype=torch.float64)).softmax(1)


def covariance(p: Tensor) -> Tensor:
    return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]


def outcomes(p: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Every direction that can be drawn of one example, shape (classes behind, classes), and their probabilities."""
    among = p.sort(descending=True).values[columns:]
    among = among / among.sum()
    # The middle of each step of the distribution function.
    noise = (among.cumsum(0) - among / 2)[:, None]
    return drawn_directions(p.expand(len(among), -1), columns, noise)[0], among


def network(classes: int = CLASSES) -> tuple[nn.Module, Tensor]:
    """A classifier that is far from sure of its examples."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, classes)).double()
    return model, torch.randn(30, 4, dtype=torch.float64)


@pytest.mark.parametrize("columns", [0, 1, 3, CLASSES - 2])
def test_a_drawn_direction_is_what_the_leading_ones_leave_in_expectation(columns: int) -> None:
    for p in probabilities(10):
        directions, chances = outcomes(p, columns)
        kept = leading_root(p[None], columns)[:, 0]
        found = kept.T @ kept + torch.einsum("y,yi,yj->ij", chances, directions, directions)
        assert torch.allclose(found, covariance(p[None])[0], atol=1e-15)


@pytest.mark.parametrize("columns", [0, 1, 3, CLASSES - 2])
@pytest.mark.parametrize("sharpness", [0.0, 2.0])
def test_its_variance_is_that_over_all_that_can_be_drawn(columns: int, sharpness: float) -> None:
    some = probabilities(10, sharpness=sharpness)
    for p, found in zip(some, variances(some, columns), strict=True):
        directions, chances = outcomes(p, columns)
        kept = leading_root(p[None], columns)[:, 0]
        left = covariance(p[None])[0] - kept.T @ kept
        errors = torch.einsum("yi,yj->yij", directions, directions) - left
        assert float(found) == pytest.approx(float(chances @ errors.square().sum((1, 2))), abs=1e-14)


def test_where_all_that_can_be_drawn_is_the_same_nothing_scatters() -> None:
    sure, even = torch.zeros(1, CLASSES), torch.full((1, 2), 0.5)
    sure[0, 3] = 1
    assert variances(sure, 0).item() == variances(sure, 2).item() == variances(even, 0).item() == 0


def test_what_is_added_in_parts_is_what_is_added_at_once() -> None:
    outputs = probabilities(20).log()
    whole, parts = Scatter(CLASSES, outputs.device), Scatter(CLASSES, outputs.device)
    whole.add(outputs, kept=2, samples=1)
    for part in outputs.split(7):
        parts.add(part, kept=2, samples=1)
    assert parts.relative() == pytest.approx(whole.relative(), rel=1e-12)
    p = probabilities(20)
    expected = variances(p, 2).sum().sqrt() / torch.linalg.matrix_norm(covariance(p).sum(0))
    assert whole.relative() == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("estimator", [Truncated(1e-6, 1), Truncated(1e-6, 3), MonteCarlo(2)])
def test_the_mean_over_seeds_is_the_exact_fisher_and_its_scatter_is_as_foretold(estimator: Estimator) -> None:
    model, inputs = network()
    exact, repeats = dense_fisher(model, inputs), 400
    found = [
        compute_fisher(
            model,
            inputs,
            approximations=set(Approximation),
            estimator=estimator,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in range(repeats)
    ]
    mean = torch.stack([one.dense for one in found]).mean(0)
    apart = [relative_error(one.dense, exact) for one in found]
    seen = (sum(error**2 for error in apart) / repeats) ** 0.5
    assert relative_error(mean, exact) < 3 * seen / repeats**0.5
    assert relative_error(flat(found[0].diagonal), found[0].dense.diagonal()) < 1e-12
    # Of the last layer's bias, J is the identity, so that its block is the mean of H.
    head = slice(-CLASSES, None)
    errors = [relative_error(one.dense[head, head], exact[head, head]) for one in found]
    (foretold,) = {one.scatter for one in found}
    assert (sum(error**2 for error in errors) / repeats) ** 0.5 == pytest.approx(foretold, rel=0.1)


def test_more_kept_directions_scatter_less_and_all_of_them_not_at_all() -> None:
    model, inputs = network()
    scatters = [
        compute_fisher(model, inputs, estimator=Truncated(1e-9, most), generator=torch.Generator()).scatter
        for most in range(1, CLASSES + 1)
    ]
    assert scatters == sorted(scatters, reverse=True)
    assert scatters[0] > 0
    assert scatters[CLASSES - 2 :] == [0.0, 0.0]


def test_a_limit_that_no_example_reaches_changes_nothing() -> None:
    model, inputs = network()
    free = compute_fisher(model, inputs, estimator=Truncated(0.3))
    limited = compute_fisher(model, inputs, estimator=Truncated(0.3, CLASSES), generator=torch.Generator())
    assert torch.equal(flat(free.diagonal), flat(limited.diagonal))
    assert (free.scatter, limited.scatter) == (None, 0.0)


def test_chunks_do_not_change_what_is_drawn() -> None:
    model, inputs = network()
    with pytest.raises(InputError, match="at least") as error:
        compute_fisher(model, inputs, memory_limit=1, estimator=Truncated(0.01, 2), generator=torch.Generator())
    least = int(str(error.value).split()[-1])
    found = [
        compute_fisher(
            model,
            inputs,
            memory_limit=least + spare,
            estimator=Truncated(0.01, 2),
            generator=torch.Generator().manual_seed(5),
        )
        for spare in (0, 2**20)
    ]
    assert relative_error(flat(found[0].diagonal), flat(found[1].diagonal)) < 1e-13


def test_only_what_may_draw_scatters() -> None:
    assert [draws_directions(one) for one in (Exact(), Empirical(), Truncated(0.1))] == [False] * 3
    assert draws_directions(MonteCarlo())
    model, inputs = network()
    assert compute_fisher(model, inputs).scatter is None


def test_what_cannot_be_drawn_is_refused() -> None:
    model, inputs = network()
    with pytest.raises(InputError, match=r"generator is missing; Truncated\(tolerance=0.1, most=2\) draws"):
        compute_fisher(model, inputs, estimator=Truncated(0.1, 2))
    with pytest.raises(InputError, match="most=0: a truncated Fisher needs at least 1 direction"):
        Truncated(0.1, 0)
