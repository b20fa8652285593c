"""How many output directions carry an example's Fisher, and how large the error of drawn directions is."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.fisher.estimators import falling


class Scatter:
    """The expected error of the mean of H over examples that comes from drawing directions."""

    def __init__(self, classes: int, device: torch.device) -> None:
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        self._total = torch.zeros(classes, classes, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, *, kept: int, samples: int) -> None:
        """Add a chunk of examples.

        Args:
            outputs: z, shape (examples, classes).
            kept: leading directions of each example that are not drawn.
            samples: directions of each example that are drawn in place of the others and averaged; 0 for none.
        """
        probabilities = outputs.double().softmax(dim=1)
        self._total += probabilities.sum(0).diag() - probabilities.T @ probabilities
        if samples:
            self._squares += variances(probabilities, kept).sum() / samples

    def relative(self) -> float:
        """Root of the expected squared error of the sum of H, relative to its Frobenius norm; 0 if the norm is 0."""
        norm = float(torch.linalg.matrix_norm(self._total))
        return float(self._squares.sqrt()) / norm if norm > 0 else 0.0


def variances(probabilities: Tensor, kept: int) -> Tensor:
    """The expected squared error of one drawn direction in the Frobenius norm, E |v v^T - R|^2, shape (examples,).

    Args:
        probabilities: p, shape (examples, classes).
        kept: leading directions of each example that are not drawn.
    """
    behind = falling(probabilities)[0][:, kept:]
    mass = behind.sum(1)
    among = torch.where(mass[:, None] > 0, behind / mass[:, None], 0)
    squares, cubes = among.square().sum(1), among.pow(3).sum(1)
    # If the network is certain of an example's class, rounding may make this negative.
    return mass.square() * (1 - 3 * squares - 4 * squares.square() + 6 * cubes).clamp(min=0)


_AT_A_TIME = 1024
"""Number of examples whose probabilities are sorted at a time."""


@dataclass(frozen=True)
class Chunk:
    """Examples that go through the network together.

    Args:
        examples: their indices, int64.
        directions: output directions that each example keeps.
        drawn: further directions, drawn in place of those that are not kept.
    """

    examples: Tensor
    directions: int
    drawn: int = 0


def remainders(outputs: Tensor) -> Tensor:
    """Traces of R_k, the part of H that the first k columns of its root leave, without cancellation.

    Args:
        outputs: the model's outputs z, shape (examples, outputs).

    Returns:
        trace R_k for k = 0 (which is trace H) to outputs - 2, in double precision, shape (examples, outputs - 1).
    """
    falling = outputs.double().softmax(dim=1).sort(dim=1, descending=True).values
    mass = falling.flip(1).cumsum(1).flip(1)
    # Over a tail, t^2 - sum p_i^2 is twice the sum of all products of two different p_i.
    products = (2 * falling[:, :-1] * mass[:, 1:]).flip(1).cumsum(1).flip(1)
    return torch.where(mass[:, :-1] > 0, products / mass[:, :-1], 0)


def plan_chunks(
    outputs: Tensor, tolerance: float, fitting: Callable[[int], int], *, most: int | None = None
) -> list[Chunk]:
    """Choose each example's directions so that what is left out is at most a part of the mean trace of H.

    The mean over examples of trace R_k is at most `tolerance` times that of trace H. The Fisher then lacks a sum of
    J^T R_k J, which is positive semi-definite. An example that needs more than `most` directions gets `most`. It keeps
    none, half or all but one of these, whichever has the smallest error. The others are drawn, so that in expectation
    nothing is missing.

    Args:
        outputs: the model's outputs for all examples, shape (examples, outputs).
        tolerance: at least 0.
        fitting: gives the number of examples that fit the memory with a number of directions.
        most: most directions of an example, at least 1; None for no limit.

    Returns:
        The chunks, most directions first. An example's directions do not depend on how chunks are cut.

    Raises:
        DivergedClientError: an output is not finite.
    """
    if not is_finite(outputs):
        raise DivergedClientError("an output of the network is not finite")
    whole = torch.cat([remainders(some)[:, 0] for some in outputs.split(_AT_A_TIME)])
    limit = tolerance * whole.mean()
    needed = torch.cat([(remainders(some) > limit).sum(1) for some in outputs.split(_AT_A_TIME)])
    limited = outputs.shape[1] - 1 if most is None else min(most, outputs.shape[1] - 1)
    beyond = needed > limited
    kept = torch.zeros_like(needed)
    kept[beyond] = torch.cat([_kept(some, limited) for some in outputs[beyond].split(_AT_A_TIME)])
    found = []
    for count in kept[beyond].unique().flip(0).tolist():
        parts = _cut((kept == count) & beyond, fitting(limited))
        found += [Chunk(part, count, drawn=limited - count) for part in parts]
    levels = _levels(limited).to(outputs.device)
    level_of = levels[torch.bucketize(needed.clamp(max=limited), levels)]
    for level in level_of[~beyond].unique().flip(0).tolist():
        found += [Chunk(part, level) for part in _cut((level_of == level) & ~beyond, fitting(level))]
    return found


def _kept(outputs: Tensor, limited: int) -> Tensor:
    """How many of `limited` directions each example keeps, if the others are drawn, for the smallest error."""
    options = torch.tensor(sorted({0, limited // 2, limited - 1}))
    probabilities = outputs.double().softmax(1)
    scatters = torch.stack([variances(probabilities, kept) / (limited - kept) for kept in options.tolist()])
    return options.to(outputs.device)[scatters.argmin(0)]


def _levels(most: int) -> Tensor:
    """Numbers of directions that an example may have, few so that chunks are full: 1, 2, 3, 4, 6, 8, 12, ... most."""
    powers = [2**exponent for exponent in range(most.bit_length())]
    steps = {step for power in powers for step in (power, power * 3 // 2) if step < most}
    return torch.tensor(sorted({*steps, most}))


def _cut(chosen: Tensor, most: int) -> tuple[Tensor, ...]:
    """Cut the indices of the chosen examples into parts of equal size."""
    examples = chosen.nonzero().flatten()
    return examples.tensor_split(math.ceil(len(examples) / most))
