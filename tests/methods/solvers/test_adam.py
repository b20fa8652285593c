import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.solvers.first_order import adam

SETTINGS = {"steps": 40, "learning_rate": 0.05, "longest": 0.3, "check_every": 10}


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in parameters.values()])


def slow(problem, steps: int) -> Tensor:
    """Adam on half of the objective, with dense matrices."""
    point = problem.mean.clone().requires_grad_()
    optimiser = torch.optim.Adam([point], lr=0.05)
    for _ in range(steps):
        point.grad = problem.matrix @ point.detach() - problem.side
        torch.nn.utils.clip_grad_norm_([point], max_norm=0.3)
        optimiser.step()
    return point.detach()


def test_iterates_are_those_of_dense_matrices(problem):
    solution = adam(problem.quadratic, **SETTINGS)
    torch.testing.assert_close(flat(solution.parameters), slow(problem, 40))
    assert (solution.iterations, solution.selected) == (40, 40)
    assert solution.objective == pytest.approx(problem.value(slow(problem, 40)))


def test_the_best_of_the_scored_iterates_is_kept(problem):
    scores = iter([0.1, 0.2, 0.5, 0.5, 0.4])
    solution = adam(problem.quadratic, score=lambda _: next(scores), **SETTINGS)
    assert [one.iteration for one in solution.history] == [1, 11, 21, 31, 40]
    assert solution.selected == 21
    torch.testing.assert_close(flat(solution.parameters), slow(problem, 21))


@pytest.mark.parametrize("setting", ["steps", "learning_rate", "longest", "check_every"])
def test_settings_must_be_positive(problem, setting):
    with pytest.raises(InputError, match=f"{setting} is 0; allowed: a positive number"):
        adam(problem.quadratic, **(SETTINGS | {setting: 0}))
