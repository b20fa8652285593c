"""How training examples are split over clients."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.data.natural import (
    by_column,
    by_domain,
    by_size,
    require_column,
    require_domain,
    require_largest,
)
from fedfisher_core.data.pachinko import allocate
from fedfisher_core.errors import InputError
from fedfisher_core.seeds import Stream, numpy_generator
from fedfisher_core.settings import Cell, PartitionSettings

Indices = NDArray[np.int64]
# FedFisher's authors draw every split with NumPy's legacy generator and this seed (main.py).
_PAPER_SEED = 3


@dataclass(frozen=True)
class Partition:
    """A split of the training examples.

    Args:
        clients: the examples of each client, in the order in which it keeps them.
        validation: the examples that the server holds; clients hold them too.
    """

    clients: tuple[Indices, ...]
    validation: Indices

    def digest(self) -> str:
        """Digest of who holds what, 16 hexadecimal digits."""
        content = hashlib.sha256()
        for indices in (*self.clients, self.validation):
            content.update(len(indices).to_bytes(8, "little"))
            content.update(np.ascontiguousarray(indices, dtype="<i8").tobytes())
        return content.hexdigest()[:16]

    def label_counts(self, labels: Indices, classes: int) -> Indices:
        """Count each client's labels.

        Args:
            labels: of all training examples.
            classes: number of labels.

        Returns:
            Counts of shape (clients, classes).
        """
        return np.stack([np.bincount(labels[indices], minlength=classes) for indices in self.clients])


def split(
    settings: PartitionSettings,
    cell: Cell,
    labels: Indices,
    *,
    classes: int,
    validation_size: int,
    groups: Indices | None = None,
    group_sizes: Mapping[str, int] | None = None,
    coarse: Sequence[int] = (),
) -> Partition:
    """Split the training examples over the clients of one cell.

    Args:
        settings: the scheme, and what it demands of each client.
        cell: alpha, number of clients and seed.
        labels: of all training examples, shape (examples,).
        classes: number of labels.
        validation_size: examples that the server holds.
        groups: who made each example, shape (examples,); for the schemes by column.
        group_sizes: how many each maker made, by its name, 0 for one of test examples alone; None where no makers have
            names.
        coarse: the coarse label of each label; for the scheme `pachinko`.

    Returns:
        A partition that is disjoint and, but for the scheme `largest`, complete over the clients.

    Raises:
        InputError: no draw gave every client `min_size` examples, or the data can't be split this way.
    """
    require_split(
        settings,
        cell,
        np.bincount(labels, minlength=classes),
        validation_size=validation_size,
        groups=_sizes(groups) if group_sizes is None and groups is not None else group_sizes,
        coarse=coarse,
    )
    if cell.scheme == "paper":
        return _paper(settings, cell, labels, classes, validation_size)
    draw = _scheme(settings, cell, labels, classes, groups, coarse)
    rng = numpy_generator(cell.seed, Stream.PARTITION)
    for _ in range(settings.max_retries):
        clients = tuple(rng.permutation(indices) for indices in draw(rng))
        if min(map(len, clients)) >= settings.min_size:
            # What nobody holds the server has not either.
            held = np.sort(np.concatenate(clients))
            seen = numpy_generator(cell.seed, Stream.VALIDATION).choice(held, validation_size, replace=False)
            return Partition(clients=clients, validation=seen.astype(np.int64))
    raise _too_small(settings, cell, min(map(len, clients)), f"in {settings.max_retries} draws")


def _sizes(groups: Indices) -> dict[str, int]:
    known, sizes = np.unique(groups, return_counts=True)
    return {str(one): int(size) for one, size in zip(known, sizes, strict=True)}


def require_split(
    settings: PartitionSettings,
    cell: Cell,
    labels: Indices,
    *,
    validation_size: int,
    groups: Mapping[str, int] | None = None,
    coarse: Sequence[int] = (),
) -> None:
    """Refuse what no draw can split.

    Args:
        settings: the scheme, and what it demands of each client.
        cell: the number of clients.
        labels: how many training examples have each label, shape (classes,).
        validation_size: examples that the server holds.
        groups: training examples by the name of who made them, for the schemes by column; None where the data does
            not say.
        coarse: the coarse label of each label, for the scheme `pachinko`; empty where there are none.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    examples, count = int(labels.sum()), cell.clients
    if validation_size > examples:
        raise InputError(
            f"data.validation_size={validation_size} exceeds the {examples} training examples; "
            f"allowed: up to {examples}"
        )
    if count * settings.min_size > examples:
        raise InputError(
            f"partition.clients={count} with partition.min_size={settings.min_size} needs {count * settings.min_size} "
            f"training examples; there are {examples}; allowed: up to {examples // count} for each of so many clients"
        )
    if cell.scheme == "classes":
        _require_classes(count, settings.classes_per_client, labels)
    if cell.scheme == "target":
        _require_target(count, settings, labels)
    if cell.scheme == "column":
        require_column(settings, count, groups)
    if cell.scheme == "domain":
        require_domain(settings, count, groups)
    if cell.scheme == "largest":
        require_largest(settings, count, groups, validation_size)
    if cell.scheme == "pachinko" and not coarse:
        raise InputError("partition.scheme=pachinko: the data has no coarse labels; allowed: with data that has them")


def _require_classes(count: int, each: int, labels: Indices) -> None:
    if (classes := len(labels)) < each:
        raise InputError(
            f"partition.classes_per_client={each} exceeds the {classes} classes of the data; allowed: up to {classes}"
        )
    if count * each < len(labels) and labels.all():
        raise InputError(
            f"partition.clients={count} with partition.classes_per_client={each} leaves classes to nobody; "
            f"allowed: a product of the two of {len(labels)} or more"
        )


def _require_target(count: int, settings: PartitionSettings, labels: Indices) -> None:
    label = settings.target_label
    assert label is not None
    if label >= len(labels) or not labels[label]:
        raise InputError(
            f"partition.target_label={label}: no training example has it; allowed: {np.flatnonzero(labels).tolist()}"
        )
    if count < 2:
        raise InputError(f"partition.clients={count} with partition.scheme=target; allowed: at least 2")
    others = int(labels.sum() - labels[label])
    if settings.target_extra >= others:
        raise InputError(
            f"partition.target_extra={settings.target_extra} leaves no example to the other clients; allowed: at most "
            f"{others - 1}"
        )


def _scheme(
    settings: PartitionSettings,
    cell: Cell,
    labels: Indices,
    classes: int,
    groups: Indices | None,
    coarse: Sequence[int],
) -> Callable[[np.random.Generator], list[Indices]]:
    count = cell.clients
    if cell.scheme == "dirichlet_client":
        return lambda rng: _dirichlet_client(rng, labels, classes, count, _alpha(cell))
    if cell.scheme == "dirichlet_class":
        return lambda rng: _dirichlet_class(rng, labels, classes, count, _alpha(cell))
    if cell.scheme == "classes":
        return lambda rng: _classes(rng, labels, classes, count, settings.classes_per_client)
    if cell.scheme == "iid":
        return lambda rng: list(np.array_split(rng.permutation(len(labels)), count))
    if cell.scheme == "quantity":
        return lambda rng: _quantity(rng, labels, classes, count, _alpha(cell))
    if cell.scheme == "target":
        return lambda rng: _target(rng, settings, cell, labels, classes)
    if cell.scheme == "pachinko":
        beta = settings.beta
        assert beta is not None
        return lambda rng: allocate(rng, labels, coarse, count, _alpha(cell), beta)
    assert groups is not None
    if cell.scheme == "largest":
        return lambda _: by_size(groups, count)
    given = by_column if cell.scheme == "column" else by_domain
    return lambda rng: given(rng, groups, count)


def _alpha(cell: Cell) -> float:
    assert cell.alpha is not None
    return cell.alpha


def _dirichlet_client(
    rng: np.random.Generator | np.random.RandomState, labels: Indices, classes: int, count: int, alpha: float
) -> list[Indices]:
    """Draw class proportions for each client, then share each class in proportion (FedFisher, data.py)."""
    shares = np.stack([rng.dirichlet(np.repeat(alpha, classes)) for _ in range(count)])
    return _share_classes(rng, labels, shares)


def _share_classes(
    rng: np.random.Generator | np.random.RandomState, labels: Indices, shares: NDArray[np.float64]
) -> list[Indices]:
    """Give client i the part shares[i, k] / sum_j shares[j, k] of class k.

    Parts end at whole examples, rounded down as in FedFisher's code, so that the last client has what is left, an
    example of nearly every class. Where all shares of a class are 0 in floating point, nobody gets anything: such a
    draw is too small for any client.
    """
    parts: list[list[Indices]] = [[] for _ in shares]
    if not (shares.sum(axis=0) > 0).all():
        return [np.zeros(0, dtype=np.int64) for _ in shares]
    for label in range(shares.shape[1]):
        members = np.flatnonzero(labels == label)
        rng.shuffle(members)
        share = shares[:, label] / shares[:, label].sum()
        bounds = (np.cumsum(share) * len(members)).astype(int)[:-1]
        for part, piece in zip(parts, np.split(members, bounds), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def _dirichlet_class(
    rng: np.random.Generator, labels: Indices, classes: int, count: int, alpha: float
) -> list[Indices]:
    """Draw client proportions for each class; a client that holds its fair share gets no more (NIID-Bench)."""
    parts: list[list[Indices]] = [[] for _ in range(count)]
    held = np.zeros(count, dtype=int)
    for label in range(classes):
        members = rng.permutation(np.flatnonzero(labels == label))
        share = rng.dirichlet(np.repeat(alpha, count)) * (held < len(labels) / count)
        if len(members) == 0:
            # The draw is made all the same: those of later classes stay what they are.
            continue
        if share.sum() == 0:
            # Every client that drew a part is full: the class is shared among those that are not.
            share = (held < len(labels) / count).astype(float)
        bounds = (np.cumsum(share / share.sum()) * len(members)).astype(int)[:-1]
        for client, piece in enumerate(np.split(members, bounds)):
            parts[client].append(piece)
            held[client] += len(piece)
    return [np.concatenate(part) for part in parts]


def _classes(rng: np.random.Generator, labels: Indices, classes: int, count: int, each: int) -> list[Indices]:
    """Deal `each` classes to every client in turn, then share each class evenly among its clients."""
    deck: list[int] = []
    owners: list[list[int]] = [[] for _ in range(classes)]
    for client in range(count):
        hand: list[int] = []
        while len(hand) < each:
            if not deck:
                deck += rng.permutation(classes).tolist()
            hand.append(deck.pop(next(i for i, label in enumerate(deck) if label not in hand)))
        for label in hand:
            owners[label].append(client)
    parts: list[list[Indices]] = [[] for _ in range(count)]
    for label, holders in enumerate(owners):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) and not holders:
            raise InputError(
                f"partition.clients={count} with partition.classes_per_client={each} leaves class {label} to nobody; "
                f"clients x classes_per_client must be at least {classes}"
            )
        for client, piece in zip(holders, np.array_split(members, max(len(holders), 1)), strict=bool(holders)):
            parts[client].append(piece)
    return [np.concatenate(part) for part in parts]


def _quantity(rng: np.random.Generator, labels: Indices, classes: int, count: int, alpha: float) -> list[Indices]:
    """Draw each client's share of the examples, the same of every class (NIID-Bench, quantity skew).

    Li et al. (2022, "Federated Learning on Non-IID Data Silos") cut shuffled examples without a look at their labels,
    which leaves small clients with skewed labels by chance; here they have none but what rounding gives.
    """
    shares = rng.dirichlet(np.repeat(alpha, count))
    return _share_classes(rng, labels, np.repeat(shares[:, None], classes, axis=1))


def _target(
    rng: np.random.Generator, settings: PartitionSettings, cell: Cell, labels: Indices, classes: int
) -> list[Indices]:
    """Give client 0 a whole label and some random others; the others share what is left (Appendix E)."""
    label = settings.target_label
    whole, others = np.flatnonzero(labels == label), rng.permutation(np.flatnonzero(labels != label))
    extra, left = np.split(others, [settings.target_extra])
    shared = _dirichlet_client(rng, labels[left], classes, cell.clients - 1, _alpha(cell))
    return [np.concatenate([whole, extra]), *(left[part] for part in shared)]


def _paper(settings: PartitionSettings, cell: Cell, labels: Indices, classes: int, validation_size: int) -> Partition:
    """Repeat the authors' draws: proportions, each class, each client, then the validation set with replacement."""
    rng = np.random.RandomState(_PAPER_SEED)
    clients = _dirichlet_client(rng, labels, classes, cell.clients, _alpha(cell))
    for indices in clients:
        rng.shuffle(indices)
    if min(map(len, clients)) < settings.min_size:
        raise _too_small(settings, cell, min(map(len, clients)), "in the paper's split, which is drawn once")
    return Partition(clients=tuple(clients), validation=rng.choice(len(labels), validation_size).astype(np.int64))


def _too_small(settings: PartitionSettings, cell: Cell, smallest: int, how: str) -> InputError:
    alpha = "" if cell.alpha is None else f", partition.alpha={cell.alpha:g}"
    return InputError(
        f"partition.scheme={cell.scheme}, partition.clients={cell.clients}{alpha}, seed {cell.seed}: a client is "
        f"left with {smallest} examples {how}; partition.min_size={settings.min_size} asks for more. "
        f"Use fewer clients, a larger alpha or a smaller min_size"
    )
