import math

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.solvers.paper import paper_diagonal, paper_kronecker


def flat(parameters):
    return torch.cat([tensor.flatten() for tensor in parameters.values()])


def transcription(problem, steps, *, inside):
    """Number by number, on dense matrices; returns all iterates."""
    matrix, side = problem.matrix.tolist(), problem.side.tolist()
    w = problem.mean.tolist()
    m, s = [0.0] * len(w), [0.0] * len(w)
    iterates = []
    for _ in range(steps):
        gradient = [sum(a * x for a, x in zip(row, w, strict=True)) - b for row, b in zip(matrix, side, strict=True)]
        for k, g in enumerate(gradient):
            m[k] = 0.9 * m[k] + g
            s[k] = 0.99 * s[k] + g * g
            w[k] -= 0.01 * m[k] / (math.sqrt(s[k] + 0.01) if inside else math.sqrt(s[k]) + 0.01)
        iterates.append(torch.tensor(w, dtype=torch.float64))
    return iterates


@pytest.mark.parametrize(("solver", "inside"), [(paper_diagonal, False), (paper_kronecker, True)])
def test_iterates_are_those_of_a_slow_transcription(problem, solver, inside):
    iterates = transcription(problem, 30, inside=inside)
    solution = solver(problem.quadratic, steps=30)
    torch.testing.assert_close(flat(solution.parameters), iterates[-1])
    assert solution.objective == pytest.approx(problem.value(iterates[-1]))
    assert solution.selected == solution.iterations == 30


@pytest.mark.parametrize("solver", [paper_diagonal, paper_kronecker])
def test_it_scores_steps_1_11_21_and_keeps_the_first_best(problem, solver):
    scores = iter([0.1, 0.7, 0.7])
    seen = []

    def score(parameters):
        seen.append(flat(parameters))
        return next(scores)

    solution = solver(problem.quadratic, steps=30, check_every=10, score=score)
    iterates = transcription(problem, 30, inside=solver is paper_kronecker)
    assert [checkpoint.iteration for checkpoint in solution.history] == [1, 11, 21]
    assert [checkpoint.score for checkpoint in solution.history] == [0.1, 0.7, 0.7]
    assert solution.selected == 11
    torch.testing.assert_close(flat(solution.parameters), iterates[10])
    torch.testing.assert_close(torch.stack(seen), torch.stack([iterates[k] for k in (0, 10, 20)]))


@pytest.mark.parametrize("solver", [paper_diagonal, paper_kronecker])
def test_identical_clients_return_the_client(agreed, solver):
    solution = solver(agreed.quadratic, steps=50)
    torch.testing.assert_close(flat(solution.parameters), flat(agreed.clients[0]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("setting", ["steps", "check_every"])
def test_settings_must_be_positive(problem, setting):
    with pytest.raises(InputError, match=f"{setting} is 0"):
        paper_diagonal(problem.quadratic, **{setting: 0})


def test_a_score_that_is_no_number_is_refused(problem):
    with pytest.raises(InputError, match="score is not a number at iteration 1"):
        paper_diagonal(problem.quadratic, steps=5, score=lambda parameters: math.nan)
