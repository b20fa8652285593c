"""Splits of the training examples over clients."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.data.natural import (
    allocate,
    by_column,
    by_domain,
    by_size,
    require_column,
    require_domain,
    require_largest,
)
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, numpy_generator
from fedfisher_core.settings import PartitionSettings, SeededSetting

Indices = NDArray[np.int64]
# FedFisher's authors draw every split with NumPy's legacy generator and this seed (main.py).
_PAPER_SEED = 3


@dataclass(frozen=True)
class Partition:
    """A split of the training examples.

    Args:
        clients: indices of each client's examples, in the client's order.
        validation: indices of the server's examples, which clients hold too.
    """

    clients: tuple[Indices, ...]
    validation: Indices

    def digest(self) -> str:
        """Digest of all clients' and the server's examples, 16 hexadecimal digits."""
        content = hashlib.sha256()
        for indices in (*self.clients, self.validation):
            content.update(len(indices).to_bytes(8, "little"))
            content.update(np.ascontiguousarray(indices, dtype="<i8").tobytes())
        return content.hexdigest()[:16]

    def label_counts(self, labels: Indices, classes: int) -> Indices:
        """Count each client's labels, shape (clients, classes), given those of all training examples."""
        return np.stack([np.bincount(labels[indices], minlength=classes) for indices in self.clients])


def split(
    settings: PartitionSettings,
    setting: SeededSetting,
    labels: Indices,
    *,
    classes: int,
    validation_size: int,
    groups: Indices | None = None,
    group_sizes: Mapping[str, int] | None = None,
    coarse: Sequence[int] = (),
) -> Partition:
    """Split the training examples over the clients of one federation.

    Args:
        labels: of all training examples, shape (examples,).
        groups: maker of each example, shape (examples,), for schemes by column.
        group_sizes: training examples by the maker's name, 0 for one of test examples alone; None if makers have no
            names.
        coarse: the coarse label of each label, for the scheme `pachinko`.

    Returns:
        A disjoint partition. It is complete over the clients, except with the scheme `largest`.

    Raises:
        InputError: no draw gave every client `min_size` examples, or the data can't be split this way.
    """
    require_split(
        settings,
        setting,
        np.bincount(labels, minlength=classes),
        validation_size=validation_size,
        groups=_sizes(groups) if group_sizes is None and groups is not None else group_sizes,
        coarse=coarse,
    )
    if setting.scheme == "paper":
        return _paper(settings, setting, labels, classes, validation_size)
    draw = _scheme(settings, setting, labels, classes, groups, coarse)
    rng = numpy_generator(setting.seed, Stream.PARTITION)
    for _ in range(settings.max_retries):
        clients = tuple(rng.permutation(indices) for indices in draw(rng))
        if min(map(len, clients)) >= settings.min_size:
            # The server has only examples that a client holds.
            held = np.sort(np.concatenate(clients))
            seen = numpy_generator(setting.seed, Stream.VALIDATION).choice(held, validation_size, replace=False)
            return Partition(clients=clients, validation=seen.astype(np.int64))
    raise _too_small(settings, setting, min(map(len, clients)), f"in {settings.max_retries} draws")


def _sizes(groups: Indices) -> dict[str, int]:
    known, sizes = np.unique(groups, return_counts=True)
    return {str(one): int(size) for one, size in zip(known, sizes, strict=True)}


def require_split(
    settings: PartitionSettings,
    setting: SeededSetting,
    labels: Indices,
    *,
    validation_size: int,
    groups: Mapping[str, int] | None = None,
    coarse: Sequence[int] = (),
) -> None:
    """Refuse settings with which no draw can split the data.

    Args:
        labels: number of training examples with each label, shape (classes,).
        groups: training examples by the maker's name, for schemes by column; None if the data has no makers.
        coarse: the coarse label of each label, for the scheme `pachinko`; empty if there are none.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    examples, count = int(labels.sum()), setting.clients
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
    if setting.scheme == "classes":
        _require_classes(count, settings.classes_per_client, labels)
    if setting.scheme == "target":
        _require_target(count, settings, labels)
    if setting.scheme == "column":
        require_column(settings, count, groups)
    if setting.scheme == "domain":
        require_domain(settings, count, groups)
    if setting.scheme == "largest":
        require_largest(settings, count, groups, validation_size)
    if setting.scheme == "pachinko" and not coarse:
        raise InputError("partition.scheme=pachinko: the data has no coarse labels; allowed: with data that has them")


def _require_classes(count: int, each: int, labels: Indices) -> None:
    if (classes := np.count_nonzero(labels)) < each:
        raise InputError(
            f"partition.classes_per_client={each} exceeds the {classes} classes of the training examples; allowed: up "
            f"to {classes}"
        )
    if count * each < classes:
        raise InputError(
            f"partition.clients={count} with partition.classes_per_client={each} leaves classes without a client; "
            f"allowed: a product of the two of {classes} or more"
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
    setting: SeededSetting,
    labels: Indices,
    classes: int,
    groups: Indices | None,
    coarse: Sequence[int],
) -> Callable[[np.random.Generator], list[Indices]]:
    count = setting.clients
    if setting.scheme == "dirichlet_client":
        return lambda rng: _dirichlet_client(rng, labels, classes, count, _alpha(setting))
    if setting.scheme == "dirichlet_class":
        return lambda rng: _dirichlet_class(rng, labels, classes, count, _alpha(setting))
    if setting.scheme == "classes":
        return lambda rng: _classes(rng, labels, classes, count, settings.classes_per_client)
    if setting.scheme == "iid":
        return lambda rng: list(np.array_split(rng.permutation(len(labels)), count))
    if setting.scheme == "quantity":
        return lambda rng: _quantity(rng, labels, classes, count, _alpha(setting))
    if setting.scheme == "target":
        return lambda rng: _target(rng, settings, setting, labels, classes)
    if setting.scheme == "pachinko":
        beta = settings.beta
        assert beta is not None
        return lambda rng: allocate(rng, labels, coarse, count, _alpha(setting), beta)
    assert groups is not None
    if setting.scheme == "largest":
        return lambda _: by_size(groups, count)
    given = by_column if setting.scheme == "column" else by_domain
    return lambda rng: given(rng, groups, count)


def _alpha(setting: SeededSetting) -> float:
    assert setting.alpha is not None
    return setting.alpha


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
    example of nearly every class. If all shares of a class are 0 in floating point, no client gets any example, and the
    draw is rejected as too small.
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
            # The draw was made all the same, so that those of later classes do not change.
            continue
        if share.sum() == 0:
            # Every client that drew a part is full, so the others share the class.
            share = (held < len(labels) / count).astype(float)
        bounds = (np.cumsum(share / share.sum()) * len(members)).astype(int)[:-1]
        for client, piece in enumerate(np.split(members, bounds)):
            parts[client].append(piece)
            held[client] += len(piece)
    return [np.concatenate(part) for part in parts]


def _classes(rng: np.random.Generator, labels: Indices, classes: int, count: int, each: int) -> list[Indices]:
    """Deal `each` classes to every client in turn, then share each class evenly among its clients.

    Only classes with examples are dealt, each once before one is dealt again.
    """
    dealt = np.unique(labels)
    deck: list[int] = []
    owners: list[list[int]] = [[] for _ in range(classes)]
    for client in range(count):
        hand: list[int] = []
        while len(hand) < each:
            if not deck:
                deck += rng.permutation(dealt).tolist()
            hand.append(deck.pop(next(i for i, label in enumerate(deck) if label not in hand)))
        for label in hand:
            owners[label].append(client)
    parts: list[list[Indices]] = [[] for _ in range(count)]
    for label, holders in enumerate(owners):
        members = rng.permutation(np.flatnonzero(labels == label))
        for client, piece in zip(holders, np.array_split(members, max(len(holders), 1)), strict=bool(holders)):
            parts[client].append(piece)
    return [np.concatenate(part) for part in parts]


def _quantity(rng: np.random.Generator, labels: Indices, classes: int, count: int, alpha: float) -> list[Indices]:
    """Draw each client's share of the examples, the same for every class (NIID-Bench, quantity skew).

    Li et al. (2022, "Federated Learning on Non-IID Data Silos") cut shuffled examples regardless of their labels, which
    skews the labels of small clients by chance. Here only rounding does.
    """
    shares = rng.dirichlet(np.repeat(alpha, count))
    return _share_classes(rng, labels, np.repeat(shares[:, None], classes, axis=1))


def _target(
    rng: np.random.Generator, settings: PartitionSettings, setting: SeededSetting, labels: Indices, classes: int
) -> list[Indices]:
    """Give client 0 a whole label and some random other examples; the other clients share the rest (Appendix E)."""
    label = settings.target_label
    whole, others = np.flatnonzero(labels == label), rng.permutation(np.flatnonzero(labels != label))
    extra, left = np.split(others, [settings.target_extra])
    shared = _dirichlet_client(rng, labels[left], classes, setting.clients - 1, _alpha(setting))
    return [np.concatenate([whole, extra]), *(left[part] for part in shared)]


def _paper(
    settings: PartitionSettings, setting: SeededSetting, labels: Indices, classes: int, validation_size: int
) -> Partition:
    """Repeat the authors' draws: proportions, each class, each client, then the validation set with replacement."""
    rng = np.random.RandomState(_PAPER_SEED)
    clients = _dirichlet_client(rng, labels, classes, setting.clients, _alpha(setting))
    for indices in clients:
        rng.shuffle(indices)
    if min(map(len, clients)) < settings.min_size:
        raise _too_small(settings, setting, min(map(len, clients)), "in the paper's split, which is drawn once")
    return Partition(clients=tuple(clients), validation=rng.choice(len(labels), validation_size).astype(np.int64))


def _too_small(settings: PartitionSettings, setting: SeededSetting, smallest: int, how: str) -> InputError:
    alpha = "" if setting.alpha is None else f", partition.alpha={setting.alpha:g}"
    return InputError(
        f"partition.scheme={setting.scheme}, partition.clients={setting.clients}{alpha}, seed {setting.seed}: "
        f"a client is left with {smallest} examples {how}; partition.min_size={settings.min_size} asks for more. "
        f"Use fewer clients, a larger alpha or a smaller min_size"
    )
