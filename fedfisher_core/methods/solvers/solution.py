"""What a solver returns, and how it chooses among its iterates."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.solvers.quadratic import Quadratic

Score = Callable[[Mapping[str, Tensor]], float]


@dataclass(frozen=True)
class Checkpoint:
    """The measures of one iterate.

    Args:
        iteration: number of steps behind it.
        objective: f(w).
        score: None if the solver was given no score.
    """

    iteration: int
    objective: float
    score: float | None


@dataclass(frozen=True)
class Solution:
    """The outcome of a solver.

    Args:
        parameters: the global model, named and shaped like a client's.
        iterations: number of steps done.
        selected: number of steps behind `parameters`.
        objective: f at `parameters`.
        history: the iterates that were measured, in order.
    """

    parameters: dict[str, Tensor]
    iterations: int
    selected: int
    objective: float
    history: tuple[Checkpoint, ...]


class Selection:
    """Measures iterates and keeps one: the first of the highest score or, without a score, the latest.

    Args:
        score: measure of named parameters, the higher the better; for instance accuracy on validation data.
    """

    def __init__(self, quadratic: Quadratic, score: Score | None) -> None:
        self._quadratic = quadratic
        self._score = score
        self._history: list[Checkpoint] = []
        self._parameters: dict[str, Tensor] = {}
        self._best: Checkpoint | None = None

    def measure(self, iteration: int, vectors: Sequence[Tensor]) -> None:
        """Measure the iterate after so many steps, and keep it if it is the best so far.

        Raises:
            InputError: the score is not a number.
        """
        parameters = self._quadratic.parameters(vectors)
        score = None if self._score is None else float(self._score(parameters))
        if score is not None and math.isnan(score):
            raise InputError(f"score is not a number at iteration {iteration}; allowed: any number")
        checkpoint = Checkpoint(iteration, self._quadratic.value(vectors), score)
        self._history.append(checkpoint)
        if self._best is None or score is None or self._best.score is None or score > self._best.score:
            self._best, self._parameters = checkpoint, parameters

    def solution(self, iterations: int) -> Solution:
        """Return what was kept."""
        if self._best is None:
            raise RuntimeError("a solver measured no iterate")
        return Solution(self._parameters, iterations, self._best.iteration, self._best.objective, tuple(self._history))


def check_positive(**settings: float) -> None:
    """Refuse settings of a solver that are not positive, by an InputError that names the first one."""
    for name, value in settings.items():
        if not value > 0:
            raise InputError(f"{name} is {value}; allowed: a positive number")
