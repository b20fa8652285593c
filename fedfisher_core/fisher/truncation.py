"""How many output directions of an example carry its Fisher, and which examples can share a chunk.

With the classes of an example in falling order of probability, the first k columns of the root of H = diag(p) - p p^T
leave R_k, the same for the classes behind: with t the sum of these p_i,

    R_k = diag(p_i) - p_i p_j / t,    trace R_k = t - sum p_i^2 / t,    0 <= R_k <= R_(k-1),

as each step of a Cholesky factorisation leaves a Schur complement. R_k is at most p_(k+1) times the identity.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.errors import DivergedClientError
from fedfisher_core.finite import is_finite
from fedfisher_core.fisher.scatter import variances

_AT_A_TIME = 1024
"""Examples whose probabilities are sorted at a time."""


@dataclass(frozen=True)
class Chunk:
    """Examples that go through the network together.

    Args:
        examples: their positions, int64.
        directions: how many of the output directions of each are kept.
        drawn: how many more are drawn in place of those that are not kept.
    """

    examples: Tensor
    directions: int
    drawn: int = 0


def remainders(outputs: Tensor) -> Tensor:
    """Traces of what is left of H behind each column of its root, without cancellation.

    Args:
        outputs: the model's outputs z, shape (examples, outputs).

    Returns:
        trace R_k for k = 0 (which is trace H) to outputs - 2, in double precision, shape (examples, outputs - 1).
    """
    falling = outputs.double().softmax(dim=1).sort(dim=1, descending=True).values
    mass = falling.flip(1).cumsum(1).flip(1)
    # t^2 - sum p_i^2 over a tail is twice the sum of all products of two of its p_i.
    products = (2 * falling[:, :-1] * mass[:, 1:]).flip(1).cumsum(1).flip(1)
    return torch.where(mass[:, :-1] > 0, products / mass[:, :-1], 0)


def plan_chunks(
    outputs: Tensor, tolerance: float, fitting: Callable[[int], int], *, most: int | None = None
) -> list[Chunk]:
    """Leave out of each example all directions behind which less is left than a part of the mean trace of H.

    So the mean over examples of trace R_k is at most `tolerance` times that of trace H, and a sum J^T R_k J is missing
    from the Fisher that is nowhere negative. An example that needs more than `most` directions keeps some of as many,
    and nothing is missing from it in expectation, as the others are drawn: it keeps none, half or all but one,
    whichever scatters least.

    Args:
        outputs: the model's outputs for all examples, shape (examples, outputs).
        tolerance: the part, at least 0.
        fitting: takes a number of directions, and says how many examples may go together.
        most: directions an example at most, at least 1; None for no limit.

    Returns:
        The chunks, those of most directions first. Their examples have as many directions however they are cut.

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
    """How many of as many directions each example keeps, if the others are drawn, to scatter least."""
    options = torch.tensor(sorted({0, limited // 2, limited - 1}))
    probabilities = outputs.double().softmax(1)
    scatters = torch.stack([variances(probabilities, kept) / (limited - kept) for kept in options.tolist()])
    return options.to(outputs.device)[scatters.argmin(0)]


def _levels(most: int) -> Tensor:
    """Numbers of directions that examples may have, few enough that chunks are full: 1, 2, 3, 4, 6, 8, 12, ... most."""
    powers = [2**exponent for exponent in range(most.bit_length())]
    steps = {step for power in powers for step in (power, power * 3 // 2) if step < most}
    return torch.tensor(sorted({*steps, most}))


def _cut(chosen: Tensor, most: int) -> tuple[Tensor, ...]:
    """Cut the positions of examples into parts of one size."""
    examples = chosen.nonzero().flatten()
    return examples.tensor_split(math.ceil(len(examples) / most))
