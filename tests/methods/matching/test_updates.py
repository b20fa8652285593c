import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.methods.matching.common_optima import (
    Iteration,
    Weigh,
    common_descent,
    distance,
    equal_weights,
    minimise_on_simplex,
    run_official,
    unit_rows,
)

CLIENTS, OUTPUTS, INPUTS = 4, 3, 7


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


MODELS = drawn(CLIENTS, OUTPUTS, INPUTS, seed=0)
ROWS = drawn(CLIENTS, 3, INPUTS, seed=1)
PROJECTIONS = ROWS.mT @ torch.linalg.solve(ROWS @ ROWS.mT + 0.5 * torch.eye(3, dtype=torch.float64), ROWS)
START = MODELS.mean(0)


def iteration(*, steps: int = 1, weigh: Weigh = equal_weights, penalty: float = 1.0, **changes: bool) -> Iteration:
    flags = {"anchored": True, "normalise": False} | changes
    return Iteration(steps=steps, step_size=0.3, penalty=penalty, weigh=weigh, **flags)


def by_hand(steps: int, penalty: float, cap: float | None, *, anchored: bool, normalise: bool) -> np.ndarray:
    """The paper's iteration, one client and one matrix product at a time."""
    w = START.numpy().copy()
    trained = [one.numpy().copy() for one in MODELS]
    local = [one.copy() for one in trained]
    p = [one.numpy() for one in PROJECTIONS]
    for _ in range(steps):
        g = [(w - local[i]) @ p[i] for i in range(CLIENTS)]
        alpha = np.full(CLIENTS, 1 / CLIENTS)
        if cap is not None:
            gram = np.array([[np.trace(g[i] @ g[j].T) for j in range(CLIENTS)] for i in range(CLIENTS)])
            alpha = minimise_on_simplex(gram, cap)
        d = -sum(2 * alpha[i] * g[i] for i in range(CLIENTS))
        w = w + 0.3 * d
        for i in range(CLIENTS):
            base = trained[i] if anchored else local[i]
            move = (w - base) @ (np.eye(INPUTS) - penalty / (1 + penalty) * p[i])
            if normalise:
                move = 0.3 * move / np.linalg.norm(move, axis=1, keepdims=True)
            local[i] = base + move
    return w


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("cap", [None, 0.4])
@pytest.mark.parametrize(("steps", "penalty"), [(1, 1.0), (2, 1.0), (7, 1.0), (7, 200.0)])
def test_the_iteration_is_the_papers(
    steps: int, penalty: float, cap: float | None, anchored: bool, normalise: bool
) -> None:
    weigh = equal_weights if cap is None else common_descent(cap)
    chosen = iteration(steps=steps, weigh=weigh, penalty=penalty, anchored=anchored, normalise=normalise)
    expected = by_hand(steps, penalty, cap, anchored=anchored, normalise=normalise)
    # The quadratic programme's weights are exact to 1e-8.
    assert chosen.run(MODELS, PROJECTIONS, START).numpy() == pytest.approx(expected, abs=1e-9 if cap is None else 1e-7)
    assert np.abs(expected - START.numpy()).max() > 0.05


def test_from_where_clients_were_trained_it_ends_at_the_least_distance() -> None:
    merged = Iteration(3000, 0.8, 1.0, equal_weights, True, False).run(MODELS, PROJECTIONS, START)
    stacked = np.concatenate(PROJECTIONS.numpy(), axis=1)
    targets = np.concatenate([(w @ p).numpy() for w, p in zip(MODELS, PROJECTIONS, strict=True)], axis=1)
    least = np.linalg.lstsq(stacked.T, targets.T, rcond=None)[0].T
    assert merged.numpy() == pytest.approx(least, abs=1e-4)
    assert distance(merged, MODELS, PROJECTIONS) < 0.7 * distance(START, MODELS, PROJECTIONS)


@pytest.mark.parametrize(("anchored", "part"), [(True, 1.0), (False, 0.3 / 1.15)], ids=["equation 11", "algorithm 1"])
def test_how_far_it_goes_to_a_client_in_a_direction_that_no_other_sees(anchored: bool, part: float) -> None:
    """Algorithm 1 stops after 2 x / (1 + x) of the way, x = 2 eta / clients = 0.15, as its V_i meet W on the way."""
    seen = torch.zeros(INPUTS, INPUTS, dtype=torch.float64)
    seen[2, 2] = 1
    projections = torch.stack([seen, *[0 * seen] * (CLIENTS - 1)])
    merged = iteration(steps=300, anchored=anchored).run(MODELS, projections, START)
    way = MODELS[0] - START
    expected = torch.zeros_like(way)
    expected[:, 2] = part * way[:, 2]
    assert torch.allclose(merged - START, expected, atol=1e-6)


def test_the_distance_is_the_mean_of_the_papers_objectives() -> None:
    expected = np.mean(
        [np.linalg.norm(((START - w) @ p).numpy()) ** 2 for w, p in zip(MODELS, PROJECTIONS, strict=True)]
    )
    assert distance(START, MODELS, PROJECTIONS) == pytest.approx(expected)


def test_a_common_direction_lowers_the_objective_of_every_client() -> None:
    # Orthogonal projections, as in the paper's proposition 1, and a start whose mean gradient is no common descent.
    exact = torch.linalg.pinv(ROWS) @ ROWS
    models = MODELS * torch.tensor([5.0, 1.0, 1.0, 1.0], dtype=torch.float64)[:, None, None]

    def after(weigh: Weigh) -> Tensor:
        merged = Iteration(1, 0.01, 1.0, weigh, True, False).run(models, exact, START)
        return ((merged - models) @ exact).square().sum((1, 2)) - ((START - models) @ exact).square().sum((1, 2))

    assert (after(common_descent(1.0)) < 0).all()
    assert (after(equal_weights) > 0).any()


def test_a_cap_below_equal_weights_means_equal_weights() -> None:
    gradients = drawn(CLIENTS, OUTPUTS, INPUTS, seed=3)
    assert torch.allclose(common_descent(0.1)(gradients), equal_weights(gradients))
    assert not torch.allclose(common_descent(1.0)(gradients), equal_weights(gradients), atol=0.01)


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-30, 1e30])
def test_rows_of_any_size_get_length_1(size: float) -> None:
    change = size * torch.tensor([[[3.0, 4.0], [-1.0, 0.0]], [[0.0, 2.0], [5.0, 12.0]]])
    expected = torch.tensor([[[0.6, 0.8], [-1.0, 0.0]], [[0.0, 1.0], [5 / 13, 12 / 13]]])
    assert torch.allclose(unit_rows(change), expected)


def test_rows_of_zeros_stay() -> None:
    change = torch.tensor([[0.0, 0.0], [0.0, 1e-20]])
    assert unit_rows(change).tolist() == [[0.0, 0.0], [0.0, 1.0]]


def official_by_hand(q: np.ndarray, steps: int, *, step_size: float = 1.6, normalise: bool) -> list[np.ndarray]:
    """The authors' loop, one client at a time; q is what their code calls P."""
    w = START.numpy().copy()
    v = [one.numpy().copy() for one in MODELS]
    for _ in range(steps):
        d = sum(step_size / CLIENTS * (w - v[i]) @ (q[i] - np.eye(INPUTS)).T for i in range(CLIENTS))
        w = w + d
        for i in range(CLIENTS):
            move = (w - v[i]) @ q[i].T
            if normalise:
                move = move / np.linalg.norm(move, axis=1)[:, None]
            v[i] = v[i] + step_size * move
    return v


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_the_official_iteration_is_the_authors(steps: int, normalise: bool) -> None:
    complements = torch.eye(INPUTS, dtype=torch.float64) - PROJECTIONS
    found = run_official(MODELS, complements, START, steps=steps, step_size=1.6, normalise=normalise)
    expected = official_by_hand(complements.numpy(), steps, normalise=normalise)
    assert found.numpy() == pytest.approx(np.stack(expected), abs=1e-9)


@pytest.mark.parametrize("seen", [1.0, 1e-4, 1e-8, 1e-12])
def test_the_official_steps_are_the_authors_where_data_leave_hardly_a_direction(seen: float) -> None:
    """As in a first convolution of few inputs: the projected step is exact, and short compared with the weights."""
    complements = seen * (torch.eye(INPUTS, dtype=torch.float64) - PROJECTIONS)
    found = run_official(
        MODELS.float(), complements.float(), START.float(), steps=20, step_size=0.05, normalise=True
    ).double()
    expected = official_by_hand(complements.numpy(), 20, step_size=0.05, normalise=True)
    assert found.numpy() == pytest.approx(np.stack(expected), abs=1e-4)
    assert (found - MODELS).norm(dim=-1).min() > 0.2


@pytest.mark.parametrize("steps", [1, 3])
def test_the_official_iteration_at_its_two_ends(steps: int) -> None:
    eye = torch.eye(INPUTS, dtype=torch.float64).expand(CLIENTS, -1, -1)
    # Data that span no direction: W stays, and each V_i goes to it by a factor 1 - eta.
    free = run_official(MODELS, eye, START, steps=steps, step_size=0.5, normalise=False)
    assert torch.allclose(free, START + (MODELS - START) * 0.5**steps)
    # Data that fill the space: no V_i moves.
    assert torch.equal(run_official(MODELS, 0 * eye, START, steps=steps, step_size=0.5, normalise=False), MODELS)
