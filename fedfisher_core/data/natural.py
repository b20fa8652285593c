"""Splits that data sets give: makers of examples, domains, and coarse labels."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import PartitionSettings

Indices = NDArray[np.int64]

Weights = NDArray[np.float64]


def by_column(rng: np.random.Generator, groups: Indices, count: int) -> list[Indices]:
    """Give every client the examples of one or more makers, as equally many makers as possible.

    Args:
        rng: draws the makers of each client if clients are fewer than makers. Otherwise client i is the i-th maker.
        groups: maker of each example, shape (examples,).
    """
    known = np.unique(groups)
    makers = np.array_split(known if len(known) == count else rng.permutation(known), count)
    return [np.flatnonzero(np.isin(groups, mine)) for mine in makers]


def by_domain(rng: np.random.Generator, groups: Indices, count: int) -> list[Indices]:
    """Share each domain's examples at random among equally many clients, those of the first domain first.

    Args:
        groups: domain of each example, shape (examples,).
        count: number of clients, a multiple of that of domains.
    """
    domains = np.unique(groups)
    shared = [np.array_split(rng.permutation(np.flatnonzero(groups == one)), count // len(domains)) for one in domains]
    return [part for parts in shared for part in parts]


def by_size(groups: Indices, count: int) -> list[Indices]:
    """Give every client the examples of one maker, the largest to client 0; no client gets the rest.

    Args:
        groups: maker of each example, shape (examples,). Makers of the same size keep their order.
    """
    makers, sizes = np.unique(groups, return_counts=True)
    return [np.flatnonzero(groups == maker) for maker in makers[np.argsort(-sizes, kind="stable")[:count]]]


def require_column(settings: PartitionSettings, count: int, groups: Mapping[str, int] | None) -> None:
    """Refuse makers of test examples alone, more clients than makers, and makers too small to be a client.

    Args:
        groups: training examples by the maker's name, 0 for one of test examples alone; None if the data has no makers.
    """
    groups = _trained(settings, _known(settings, groups))
    _require_enough(settings, count, groups)
    if len(groups) == count:
        _require_sizes(settings, groups, settings.min_size, "")


def require_largest(
    settings: PartitionSettings, count: int, groups: Mapping[str, int] | None, validation_size: int
) -> None:
    """Refuse more clients than makers, clients that are too small, and more validation examples than clients hold.

    A maker of test examples alone is left out, like other small makers. See `require_column` for the arguments.

    Args:
        validation_size: examples of clients that the server holds too.
    """
    known = {name: size for name, size in _known(settings, groups).items() if size}
    _require_enough(settings, count, known)
    chosen = dict(sorted(known.items(), key=lambda one: -one[1])[:count])
    _require_sizes(settings, chosen, settings.min_size, "")
    held = sum(chosen.values())
    if validation_size > held:
        raise InputError(
            f"data.validation_size={validation_size} exceeds the {held} training examples that clients hold, with the "
            f"{count} largest values of partition.column={settings.column!r}; allowed: up to {held}"
        )


def require_domain(settings: PartitionSettings, count: int, groups: Mapping[str, int] | None) -> None:
    """Refuse numbers of clients that domains can't share equally, and domains too small for their clients.

    See `require_column` for the arguments.
    """
    groups = _trained(settings, _known(settings, groups))
    if count % len(groups):
        raise InputError(
            f"partition.clients={count} with partition.scheme=domain: partition.column={settings.column!r} has "
            f"{len(groups)} values, each for as many clients; allowed: multiples of {len(groups)}"
        )
    each = count // len(groups)
    _require_sizes(settings, groups, each * settings.min_size, f" for {each} clients")


def _known(settings: PartitionSettings, groups: Mapping[str, int] | None) -> Mapping[str, int]:
    if groups is None:
        raise InputError(f"partition.column={settings.column!r}: the data has no such column")
    return groups


def _trained(settings: PartitionSettings, groups: Mapping[str, int]) -> Mapping[str, int]:
    """Refuse a maker of test examples alone, since no client would hold it."""
    for name, size in groups.items():
        if size == 0:
            raise InputError(
                f"partition.column={settings.column!r}: {name!r} has test examples, but none of the training examples "
                f"that are used; allowed: makers with training examples, or partition.scheme=largest"
            )
    return groups


def _require_enough(settings: PartitionSettings, count: int, groups: Mapping[str, int]) -> None:
    if len(groups) < count:
        raise InputError(
            f"partition.clients={count} exceeds the {len(groups)} values of partition.column={settings.column!r}"
        )


def _require_sizes(settings: PartitionSettings, groups: Mapping[str, int], least: int, whom: str) -> None:
    small = {name: size for name, size in groups.items() if size < least}
    if small:
        name = min(small, key=lambda one: small[one])
        raise InputError(
            f"partition.min_size={settings.min_size} asks for {least} training examples{whom}, but {name!r} of "
            f"partition.column={settings.column!r} has {small[name]}; allowed: a smaller min_size, or data without it"
        )


def makers_of(clients: Sequence[Indices], groups: Indices) -> list[list[int]]:
    """List the makers whose examples each client holds.

    Args:
        groups: maker of each training example, shape (examples,).
    """
    return [np.unique(groups[held]).tolist() for held in clients]


def coarse_of_labels(labels: Indices, coarse: Indices, classes: int, *, where: str) -> tuple[int, ...]:
    """Find the coarse label of each label; -1 for a label without examples.

    Args:
        labels: of all examples, shape (examples,).
        coarse: their coarse labels, shape (examples,).

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
