"""Gradient descent, conjugate gradients and the closed form agree: on the minimiser nearest to the mean."""

import itertools

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import matrix_names
from fedfisher_core.methods.solvers.exact import closed_form, conjugate_gradients
from fedfisher_core.methods.solvers.first_order import gradient_descent, largest_eigenvalue
from fedfisher_core.methods.solvers.quadratic import dense_quadratic, diagonal_quadratic, kronecker_quadratic

ITERATIVE = [gradient_descent, conjugate_gradients]


def flat(parameters):
    return torch.cat([tensor.flatten() for tensor in parameters.values()])


def assert_solves(problem, solution, tolerance):
    torch.testing.assert_close(flat(solution.parameters), problem.nearest, rtol=0, atol=tolerance)
    assert solution.objective == pytest.approx(problem.value(problem.nearest), abs=tolerance)


def test_conjugate_gradients_find_it(problem):
    assert_solves(problem, conjugate_gradients(problem.quadratic, tolerance=1e-12), 1e-9)


def test_gradient_descent_finds_it(problem):
    assert_solves(problem, gradient_descent(problem.quadratic, tolerance=1e-8, steps=20_000), 1e-5)


@pytest.mark.parametrize("problem", ["diagonal", "dense"], indirect=True)
def test_closed_form_finds_it(problem):
    solution = closed_form(problem.quadratic)
    assert_solves(problem, solution, 1e-10)
    assert solution.iterations == 0


@pytest.mark.parametrize("problem", ["kronecker"], indirect=True)
def test_closed_form_refuses_kronecker_factors(problem):
    with pytest.raises(InputError, match="can't solve a KroneckerBlock"):
        closed_form(problem.quadratic)


@pytest.mark.parametrize("solver", ITERATIVE)
def test_identical_clients_return_the_client(agreed, solver):
    solution = solver(agreed.quadratic)
    assert torch.equal(flat(solution.parameters), flat(agreed.clients[0]))
    assert solution.iterations == 0
    assert solution.objective == 0


@pytest.mark.parametrize("agreed", ["diagonal", "dense"], indirect=True)
def test_closed_form_of_identical_clients_is_the_client(agreed):
    assert torch.equal(flat(closed_form(agreed.quadratic).parameters), flat(agreed.clients[0]))


@pytest.mark.parametrize("solver", ITERATIVE)
def test_the_objective_never_rises(problem, solver):
    solution = solver(problem.quadratic, steps=12, tolerance=1e-9, check_every=1)
    values = [problem.value(problem.mean), *(checkpoint.objective for checkpoint in solution.history)]
    assert len(values) == solution.iterations + 1
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(values))
    assert values[-1] < values[0]


@pytest.mark.parametrize("solver", ITERATIVE)
def test_selection_keeps_the_first_of_the_highest_score(problem, solver):
    scores = iter([0.5, 0.8, 0.8, 0.2])
    solution = solver(problem.quadratic, steps=4, tolerance=1e-9, check_every=1, score=lambda _: next(scores))
    cut = solver(problem.quadratic, steps=2, tolerance=1e-9)
    assert solution.selected == cut.iterations == 2
    assert torch.equal(flat(solution.parameters), flat(cut.parameters))
    assert solution.objective == cut.objective
    assert [checkpoint.score for checkpoint in solution.history[:3]] == [0.5, 0.8, 0.8]


@pytest.mark.parametrize("solver", ITERATIVE)
def test_the_last_iterate_is_always_measured(problem, solver):
    solution = solver(problem.quadratic, steps=5, tolerance=1e-9, check_every=2)
    assert [checkpoint.iteration for checkpoint in solution.history][-1] == solution.iterations
    assert solution.selected == solution.iterations


def test_the_tolerance_bounds_the_residual(problem):
    for solver in ITERATIVE:
        solution = solver(problem.quadratic, tolerance=1e-3, steps=10_000)
        residual = problem.side - problem.matrix @ flat(solution.parameters)
        start = problem.side - problem.matrix @ problem.mean
        assert residual.norm() <= 1e-3 * start.norm() * (1 + 1e-9)


def test_damping_solves_the_damped_system_and_pulls_to_the_mean(problem):
    distances = []
    for damping in (0.1, 1.0, 10.0):
        solution = conjugate_gradients(problem.quadratic, damping=damping, tolerance=1e-12)
        shift = torch.cat(
            [
                (damping * block.mean_eigenvalue() * torch.ones_like(start)).flatten()
                for block, start in zip(problem.quadratic.blocks, problem.quadratic.start, strict=True)
            ]
        )
        residual = problem.side - problem.matrix @ problem.mean
        expected = problem.mean + torch.linalg.solve(problem.matrix + torch.diag(shift), residual)
        torch.testing.assert_close(flat(solution.parameters), expected, rtol=0, atol=1e-9)
        distances.append((flat(solution.parameters) - problem.mean).norm())
    assert (problem.nearest - problem.mean).norm() > distances[0] > distances[1] > distances[2] > 0


def test_power_iteration_comes_near_the_largest_eigenvalue_from_below(problem):
    truth = torch.linalg.eigvalsh(problem.matrix)[-1].item()
    assert 0.9 * truth < largest_eigenvalue(problem.quadratic) < truth * (1 + 1e-12)


def test_gradient_descent_survives_a_residual_that_hides_the_largest_direction():
    clients = [{"w": torch.tensor([1.0, 1.0], dtype=torch.float64)}, {"w": -torch.ones(2, dtype=torch.float64)}]
    diagonals = ([1.0, 100.0], [2.0, 100.0 + 1e-5])
    fishers = [{"w": torch.tensor(diagonal, dtype=torch.float64)} for diagonal in diagonals]
    quadratic = diagonal_quadratic(clients, fishers, [0.5, 0.5])
    assert largest_eigenvalue(quadratic) < 2
    solution = gradient_descent(quadratic, tolerance=1e-8, steps=5000)
    torch.testing.assert_close(solution.parameters["w"], closed_form(quadratic).parameters["w"], rtol=0, atol=1e-7)


def test_single_precision_stays_near_the_mean_in_the_null_space():
    """Rounding puts a little of every vector into the null space; long runs must not follow it."""
    generator = torch.Generator().manual_seed(5)
    clients = [{"layer.weight": torch.randn(8, 20, generator=generator)} for _ in range(3)]
    fishers = []
    for _ in range(3):
        inputs = torch.randn(10, 20, generator=generator) * torch.logspace(0, -2, 20)
        inputs[:, 15:] = 0
        outputs = torch.randn(16, 8, generator=generator)
        fishers.append({"layer": Kronecker(inputs.T @ inputs / 10, outputs.T @ outputs / 16)})
    weights = [0.5, 0.25, 0.25]
    rough = kronecker_quadratic(clients, fishers, weights)
    double = [{name: tensor.double() for name, tensor in client.items()} for client in clients]
    factors = [{"layer": Kronecker(f["layer"].inputs.double(), f["layer"].outputs.double())} for f in fishers]
    exact = kronecker_quadratic(double, factors, weights)
    reference = conjugate_gradients(exact, steps=1000, tolerance=1e-10)
    for tolerance in (1e-4, 1e-12):
        solution = conjugate_gradients(rough, steps=1000, tolerance=tolerance)
        weight = solution.parameters["layer.weight"]
        start = rough.start[0]
        assert (weight[:, 15:] - start[:, 15:]).abs().max() < 1e-4
        assert solution.objective < 1.001 * reference.objective + 1e-6 * exact.value(exact.start)


def test_an_indefinite_block_stops_before_it_diverges():
    clients = [{"layer.weight": torch.tensor([[1.0, 0.0]])}, {"layer.weight": torch.tensor([[0.0, 1.0]])}]
    fishers = [{"layer": Kronecker(torch.diag(torch.tensor([1.0, -1.0])), torch.eye(1))}] * 2
    solution = conjugate_gradients(kronecker_quadratic(clients, fishers, [0.5, 0.5]))
    assert torch.isfinite(solution.parameters["layer.weight"]).all()


def test_coordinates_below_the_cutoff_keep_the_mean():
    clients = [
        {"layer.weight": torch.tensor([[0.0, 0.0, 0.0]])},
        {"layer.weight": torch.tensor([[4.0, 4.0, 4.0]])},
    ]
    fishers = [
        {"layer.weight": torch.tensor([[1.0, 1e-6, 0.0]])},
        {"layer.weight": torch.tensor([[3.0, 3e-6, 0.0]])},
    ]
    quadratic = diagonal_quadratic(clients, fishers, [0.5, 0.5])
    assert closed_form(quadratic).parameters["layer.weight"].tolist() == [[3.0, 3.0, 2.0]]


@pytest.mark.parametrize("solver", ITERATIVE)
@pytest.mark.parametrize(("setting", "value"), [("steps", 0), ("steps", -3), ("tolerance", 0.0), ("check_every", 0)])
def test_settings_must_be_positive(problem, solver, setting, value):
    with pytest.raises(InputError, match=f"{setting} is {value}; allowed: a positive number"):
        solver(problem.quadratic, **{setting: value})


def test_damping_out_of_range_is_named(problem):
    with pytest.raises(InputError, match="damping is -1"):
        conjugate_gradients(problem.quadratic, damping=-1)


def test_the_matrices_of_a_layer_are_solved_as_if_each_were_alone():
    """In few steps, which solve none of them: one has a single direction, one is flat, one takes every step."""
    generator = torch.Generator().manual_seed(6)
    rows, columns, groups = 2, 6, 3
    weights = [0.7, 0.3]
    clients = [{"l.weight": torch.randn(groups * rows, columns, generator=generator)} for _ in weights]
    seen = [[torch.randn(9, columns, generator=generator) for _ in range(groups)] for _ in weights]
    for samples in seen:
        samples[0][1:] = 0
        samples[1].zero_()
    factors = [[Kronecker(one.T @ one / 9, (group + 1) * torch.eye(rows)) for group, one in enumerate(s)] for s in seen]
    names = matrix_names("l", groups)
    joint = kronecker_quadratic(clients, [dict(zip(names, one, strict=True)) for one in factors], weights)
    together = conjugate_gradients(joint, steps=4, damping=0.1)
    assert together.iterations == 4
    parts = []
    for group in range(groups):
        own = slice(group * rows, (group + 1) * rows)
        alone = [{"l.weight": client["l.weight"][own]} for client in clients]
        parts.append(kronecker_quadratic(alone, [{"l": one[group]} for one in factors], weights))
    solved = [conjugate_gradients(part, steps=4, damping=0.1) for part in parts]
    assert [one.iterations for one in solved] == [2, 0, 4]
    torch.testing.assert_close(
        together.parameters["l.weight"], torch.cat([one.parameters["l.weight"] for one in solved])
    )
    assert together.objective == pytest.approx(sum(one.objective for one in solved), rel=1e-5)


def test_conjugate_gradients_take_no_step_along_what_is_flat_to_rounding() -> None:
    clients = [{"w": torch.tensor([0.0, 0.0])}, {"w": torch.tensor([4.0, 4.0])}]
    fishers = [{"w": torch.tensor([1.0, 1e-10])}, {"w": torch.tensor([3.0, 3e-10])}]
    solution = conjugate_gradients(diagonal_quadratic(clients, fishers, [0.5, 0.5]), tolerance=1e-18)
    assert solution.parameters["w"].tolist() == [3.0, 2.0]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_cutoff_is_a_part_of_the_largest_eigenvalue_whatever_the_size_of_fishers(scale: float) -> None:
    clients = [{"w": torch.zeros(2)}, {"w": torch.full((2,), 4.0)}]
    fishers = [scale * torch.diag(torch.tensor([large, 1e-8 * large])) for large in (1.0, 3.0)]
    solution = closed_form(dense_quadratic(clients, fishers, [0.5, 0.5]))
    torch.testing.assert_close(solution.parameters["w"], torch.tensor([3.0, 2.0]))
