"""Pachinko allocation: clients draw coarse labels, and for each of them some of its labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.engine.errors import InputError

Indices = NDArray[np.int64]
Weights = NDArray[np.float64]


def coarse_of_labels(labels: Indices, coarse: Indices, classes: int, *, where: str) -> tuple[int, ...]:
    """Find the coarse label of each label; -1 for a label without examples.

    Args:
        labels: of all examples, shape (examples,).
        coarse: their coarse labels, shape (examples,).
        classes: number of labels.
        where: names the split and the data set in the message.

    Raises:
        InputError: a label has two coarse labels.
    """
    found = []
    for label in range(classes):
        above = np.unique(coarse[labels == label])
        if len(above) > 1:
            raise InputError(
                f"{where}: label {label} has the coarse labels {', '.join(map(str, above))}; allowed: one a label"
            )
        found.append(int(above[0]) if len(above) else -1)
    return tuple(found)


def allocate(
    rng: np.random.Generator, labels: Indices, coarse: Sequence[int], count: int, alpha: float, beta: float
) -> list[Indices]:
    """Split examples by pachinko allocation (Li and McCallum 2006; Reddi et al. 2021, appendix F).

    Each client in turn draws theta ~ Dir(alpha) over the remaining coarse labels and, for each coarse label c,
    theta_c ~ Dir(beta) over its remaining labels. Each of the client's examples has a coarse label c ~ theta, a label
    y ~ theta_c, and is one of y's examples that no client holds yet. A label without such examples leaves theta_c, and
    a coarse label without labels leaves theta; the other probabilities are divided by their sum. Clients hold equally
    many examples, up to one. Reddi et al. gave 100 to each of 500 clients.

    Args:
        labels: of all examples, shape (examples,).
        coarse: the coarse label of each label.
        count: number of clients.
        alpha: concentration over coarse labels.
        beta: concentration over the labels of one coarse label.
    """
    pools = {int(label): rng.permutation(np.flatnonzero(labels == label)).tolist() for label in np.unique(labels)}
    below: dict[int, list[int]] = {}
    for label in pools:
        below.setdefault(coarse[label], []).append(label)
    sizes = [len(part) for part in np.array_split(np.arange(len(labels)), count)]
    return [_client(rng, size, pools, below, alpha, beta) for size in sizes]


def _client(
    rng: np.random.Generator,
    size: int,
    pools: dict[int, list[int]],
    below: dict[int, list[int]],
    alpha: float,
    beta: float,
) -> Indices:
    """Take one client's examples out of the pools, and drop labels and coarse labels that have none left."""
    tops = sorted(below)
    theta = rng.dirichlet(np.repeat(alpha, len(tops)))
    each = {top: rng.dirichlet(np.repeat(beta, len(below[top]))) for top in tops}
    held = np.empty(size, dtype=np.int64)
    for place in range(size):
        top_at = rng.choice(len(tops), p=theta)
        top = tops[top_at]
        label_at = rng.choice(len(below[top]), p=each[top])
        pool = pools[below[top][label_at]]
        held[place] = pool.pop()
        if not pool:
            del below[top][label_at]
            each[top] = _without(each[top], label_at)
        if not below[top]:
            del below[top], tops[top_at]
            theta = _without(theta, top_at)
    return held


def _without(weights: Weights, place: int) -> Weights:
    """Drop one weight, and divide the others by their sum."""
    left = np.delete(weights, place)
    total = left.sum()
    # If all others are 0 in floating point, they get equal weights.
    return left / total if total > 0 else np.full(len(left), 1 / max(len(left), 1))
