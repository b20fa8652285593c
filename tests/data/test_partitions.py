import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfisher_core.data.partitions import Partition, require_split, split
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import NATURAL_SCHEMES, PartitionScheme, PartitionSettings, SeededSetting
from fedfisher_core.settings.clients import DIRICHLET_SCHEMES

CLASSES = 10
LABELS = np.arange(1000, dtype=np.int64) * 7 % CLASSES
GROUPS = np.arange(1000, dtype=np.int64) * 13 % 23
SCHEMES: tuple[PartitionScheme, ...] = (
    "dirichlet_client",
    "dirichlet_class",
    "paper",
    "classes",
    "iid",
    "quantity",
    "column",
    "target",
)


def settings(scheme: PartitionScheme, **changes: Any) -> PartitionSettings:
    column = "maker" if scheme in NATURAL_SCHEMES else None
    target = {"target_label": 3, "target_extra": 50} if scheme == "target" else {}
    return PartitionSettings(**{"scheme": scheme, "column": column, "min_size": 1, **target, **changes})


def setting(scheme: PartitionScheme, *, alpha: float = 0.5, clients: int = 5, seed: int = 0) -> SeededSetting:
    has_alpha = scheme in DIRICHLET_SCHEMES
    return SeededSetting(
        dataset="tiny",
        model="tiny",
        scheme=scheme,
        alpha=alpha if has_alpha else None,
        clients=clients,
        seed=seed,
    )


def draw(
    scheme: PartitionScheme,
    *,
    alpha: float = 0.5,
    clients: int = 5,
    seed: int = 0,
    labels: NDArray[np.int64] = LABELS,
    validation_size: int = 50,
    **changes: Any,
) -> Partition:
    return split(
        settings(scheme, **changes),
        setting(scheme, alpha=alpha, clients=clients, seed=seed),
        labels,
        classes=CLASSES,
        validation_size=validation_size,
        groups=GROUPS if scheme in NATURAL_SCHEMES else None,
    )


@pytest.mark.drawn(8)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("alpha", "clients"), [(0.05, 3), (0.5, 5), (100.0, 10)])
def test_every_image_has_exactly_one_client(scheme: PartitionScheme, alpha: float, clients: int) -> None:
    partition = draw(scheme, alpha=alpha, clients=clients, **({"classes_per_client": 4} if scheme == "classes" else {}))
    assert len(partition.clients) == clients
    assert sorted(np.concatenate(partition.clients).tolist()) == list(range(len(LABELS)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_class_without_images_is_no_obstacle(scheme: PartitionScheme) -> None:
    labels = np.where(LABELS == 4, 5, LABELS)
    partition = draw(scheme, labels=labels)
    assert sorted(np.concatenate(partition.clients).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("scheme", ["dirichlet_client", "dirichlet_class"])
@pytest.mark.parametrize("seed", range(5))
def test_every_client_holds_the_least_number_of_images(scheme: PartitionScheme, seed: int) -> None:
    least = [
        min(map(len, draw(scheme, alpha=0.1, seed=seed, min_size=size, max_retries=1000).clients)) for size in (1, 80)
    ]
    assert least[1] >= 80
    assert least[0] <= least[1]


@pytest.mark.parametrize("scheme", ["dirichlet_client", "dirichlet_class"])
def test_a_split_that_needs_no_second_draw_is_not_drawn_again(scheme: PartitionScheme) -> None:
    loose = draw(scheme, min_size=1)
    least = min(map(len, loose.clients))
    assert draw(scheme, min_size=least).digest() == loose.digest()
    assert draw(scheme, min_size=least + 1).digest() != loose.digest()


@pytest.mark.parametrize(
    ("scheme", "how"),
    [("dirichlet_client", "in 3 draws"), ("dirichlet_class", "in 3 draws"), ("paper", "drawn once")],
)
def test_a_hopeless_split_is_given_up(scheme: PartitionScheme, how: str) -> None:
    with pytest.raises(InputError) as caught:
        draw(scheme, alpha=0.05, min_size=190, max_retries=3, seed=4)
    message = str(caught.value)
    for named in (f"partition.scheme={scheme}", "partition.clients=5", "alpha=0.05", "seed 4", "min_size=190", how):
        assert named in message
    assert int(re.findall(r"left with (\d+) examples", message)[0]) < 190


@pytest.mark.parametrize(
    ("scheme", "seed", "digest"),
    [
        ("dirichlet_client", 0, "b69ede666995dc79"),
        ("dirichlet_client", 1, "522fa49bcf90af88"),
        ("dirichlet_class", 0, "4c0707b0222d4549"),
        ("dirichlet_class", 1, "99cc547338597ab1"),
        ("paper", 0, "84bd0ddd16e23f11"),
        ("classes", 0, "747a0328cae32614"),
        ("classes", 1, "43ab7882b2ae41c0"),
        ("iid", 0, "5104f1d67b6f76bc"),
        ("iid", 1, "f85be5b444c60688"),
        ("quantity", 0, "ce4b6d54347b79a4"),
        ("quantity", 1, "6c94aada22c9447c"),
        ("column", 0, "87722366826b0ceb"),
        ("column", 1, "551ecfe618e48953"),
        ("target", 0, "7a4db0c3e021c5f7"),
        ("target", 1, "04491f0b6f387683"),
    ],
)
def test_the_splits_stay_as_they_are(scheme: PartitionScheme, seed: int, digest: str) -> None:
    assert draw(scheme, seed=seed).digest() == digest


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "paper"])
def test_the_seed_decides(scheme: PartitionScheme) -> None:
    one, again, other = (draw(scheme, seed=seed) for seed in (1, 1, 2))
    assert one.digest() == again.digest() != other.digest()
    assert not np.array_equal(one.validation, other.validation)


def test_the_digest_sees_who_holds_what() -> None:
    first, second = np.array([0, 1, 2]), np.array([3, 4])
    held = np.array([0])
    digests = {
        Partition(clients=clients, validation=validation).digest()
        for clients, validation in [
            ((first, second), held),
            ((second, first), held),
            ((np.array([0, 1]), np.array([2, 3, 4])), held),
            ((first[::-1], second), held),
            ((first, second), np.array([1])),
        ]
    }
    assert len(digests) == 5


@pytest.mark.parametrize("scheme", ["dirichlet_client", "dirichlet_class"])
def test_skew_grows_as_alpha_shrinks(scheme: PartitionScheme) -> None:
    def skew(alpha: float) -> float:
        """Mean distance, in total variation, of the clients' label distributions from that of the whole."""
        distances = []
        for seed in range(10):
            counts = draw(scheme, alpha=alpha, seed=seed).label_counts(LABELS, CLASSES)
            distances.append(np.abs(counts / counts.sum(1, keepdims=True) - 0.1).sum(1).mean() / 2)
        return float(np.mean(distances))

    skews = [skew(alpha) for alpha in (0.05, 0.2, 1.0, 10.0, 1000.0)]
    assert skews == sorted(skews, reverse=True)
    assert skews[0] > 0.5
    assert skews[-1] < 0.05


@pytest.mark.parametrize("each", [1, 2, 3, 10])
def test_clients_hold_as_many_classes_as_asked(each: int) -> None:
    for seed in range(5):
        counts = draw("classes", clients=10, classes_per_client=each, seed=seed).label_counts(LABELS, CLASSES)
        assert ((counts > 0).sum(1) == each).all()
        holders = (counts > 0).sum(0)
        assert holders.max() - holders.min() <= 1 or each not in (1, 10)
        for label in range(CLASSES):
            shares = counts[counts[:, label] > 0, label]
            assert shares.max() - shares.min() <= 1


def test_a_class_without_a_client_is_refused() -> None:
    with pytest.raises(InputError, match=r"partition\.clients=4 with partition\.classes_per_client=2 leaves classes"):
        draw("classes", clients=4, classes_per_client=2)


def test_more_classes_than_there_are_cannot_be_held() -> None:
    with pytest.raises(InputError, match=r"partition\.classes_per_client=11 exceeds the 10 classes"):
        draw("classes", classes_per_client=11)


def test_iid_clients_hold_equal_numbers_of_images() -> None:
    sizes = [len(held) for held in draw("iid", clients=7).clients]
    assert max(sizes) - min(sizes) == 1


def test_clients_of_other_sizes_hold_classes_in_like_proportions() -> None:
    # Classes of 40 to 400 examples.
    labels = np.repeat(np.arange(CLASSES), 40 * np.arange(1, CLASSES + 1))
    of_class = np.bincount(labels)
    for seed in range(10):
        counts = draw("quantity", alpha=0.5, seed=seed, labels=labels).label_counts(labels, CLASSES)
        shares, sizes = counts / of_class, counts.sum(1)
        # Each client has one share of all classes, but for less than one example of each.
        lowest, highest = ((counts - 1) / of_class).max(1), ((counts + 1) / of_class).min(1)
        assert (lowest < highest).all()
        assert (np.abs(shares - (sizes / len(labels))[:, None]) <= 2 / of_class).all()
        assert sizes.max() > 2 * sizes.min()


@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_the_sizes_of_clients_are_drawn_from_a_dirichlet_distribution(alpha: float) -> None:
    labels = np.arange(10_000, dtype=np.int64) % CLASSES
    sizes = [
        [len(held) for held in draw("quantity", alpha=alpha, seed=seed, labels=labels).clients] for seed in range(400)
    ]
    shares = np.array(sizes) / len(labels)
    assert shares.mean(0) == pytest.approx(np.full(5, 0.2), abs=0.04)
    # The variance of one share of five is 4 / (25 (5 alpha + 1)).
    assert shares.var() == pytest.approx(4 / (25 * (5 * alpha + 1)), rel=0.15)


@pytest.mark.parametrize("clients", [5, 23])
def test_the_images_of_one_maker_stay_together(clients: int) -> None:
    makers = [set(GROUPS[held].tolist()) for held in draw("column", clients=clients).clients]
    assert sum(map(len, makers)) == 23
    assert max(map(len, makers)) - min(map(len, makers)) <= 1


@pytest.mark.parametrize("clients", [1, 3, 6])
def test_the_largest_makers_are_a_client_each(clients: int) -> None:
    # Of two that made equally many, the first comes first.
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(6), [20, 50, 10, 50, 30, 40]))
    labels = LABELS[: len(groups)]
    for seed in (0, 1):
        partition = split(
            settings("largest"),
            setting("largest", clients=clients, seed=seed),
            labels,
            classes=CLASSES,
            validation_size=40,
            groups=groups,
        )
        for held, maker in zip(partition.clients, [1, 3, 5, 4, 0, 2][:clients], strict=True):
            assert sorted(held.tolist()) == np.flatnonzero(groups == maker).tolist()
        # The server does not have what no client holds.
        assert set(partition.validation.tolist()) <= set(np.concatenate(partition.clients).tolist())
        assert len(set(partition.validation.tolist())) == 40


def test_a_validation_set_beyond_what_the_largest_makers_hold_is_refused() -> None:
    held = sum(sorted(np.bincount(GROUPS))[-5:])
    assert len(draw("largest", validation_size=held).validation) == held
    with pytest.raises(InputError, match=rf"validation_size={held + 1} exceeds the {held} training examples that clie"):
        draw("largest", validation_size=held + 1)


def test_the_target_label_is_with_client_0_alone() -> None:
    found = draw("target", target_label=7, target_extra=40)
    counts = found.label_counts(LABELS, CLASSES)
    assert counts[0, 7] == (LABELS == 7).sum()
    assert counts[0].sum() == counts[0, 7] + 40
    assert (counts[1:, 7] == 0).all()


def test_a_target_label_that_nobody_holds_is_refused() -> None:
    with pytest.raises(InputError, match=r"partition\.target_label=7: no training example has it; allowed: \[0, 1"):
        draw("target", target_label=7, labels=np.where(LABELS == 7, 6, LABELS))


def test_a_target_client_without_others_is_refused() -> None:
    with pytest.raises(InputError, match=r"partition\.clients=1 with partition.scheme=target"):
        draw("target", clients=1)
    with pytest.raises(
        InputError, match=r"target_extra=900 leaves no example to the other clients; allowed: at most 8"
    ):
        draw("target", target_extra=900)


def test_a_target_scheme_without_its_label_is_refused() -> None:
    with pytest.raises(ValueError, match=r"partition\.target_label must be set with partition.scheme=target"):
        PartitionSettings(scheme="target")
    with pytest.raises(ValueError, match=r"partition\.target_label must be set with partition.scheme=target"):
        PartitionSettings(scheme="iid", target_label=3)


@pytest.mark.parametrize("scheme", ["column", "largest"])
def test_more_clients_than_makers_are_refused(scheme: PartitionScheme) -> None:
    assert len(draw(scheme, clients=23).clients) == 23
    with pytest.raises(InputError, match=r"partition\.clients=24 exceeds the 23 values of partition\.column='maker'"):
        draw(scheme, clients=24)


@pytest.mark.parametrize("scheme", NATURAL_SCHEMES)
def test_a_column_that_the_data_lacks_is_refused(scheme: PartitionScheme) -> None:
    with pytest.raises(InputError, match=r"partition\.column='maker': the data has no such column"):
        split(settings(scheme), setting(scheme), LABELS, classes=CLASSES, validation_size=0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_clients_than_the_images_serve_are_refused(scheme: PartitionScheme) -> None:
    with pytest.raises(InputError, match=r"partition\.clients=5 with partition\.min_size=201 needs 1005 .* are 1000"):
        draw(scheme, min_size=201)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_validation_set_beyond_the_images_is_refused(scheme: PartitionScheme) -> None:
    with pytest.raises(InputError, match=r"data\.validation_size=1001 exceeds the 1000 training examples"):
        draw(scheme, validation_size=1001)


@pytest.mark.parametrize("size", [0, 1, 50, 1000])
def test_the_validation_set_holds_distinct_images(size: int) -> None:
    validation = draw("iid", validation_size=size).validation
    assert validation.dtype == np.int64
    assert len(set(validation.tolist())) == len(validation) == size


def test_the_validation_set_does_not_depend_on_the_split() -> None:
    drawn = [draw(scheme).validation for scheme in SCHEMES if scheme != "paper"]
    drawn.append(draw("dirichlet_client", alpha=5.0, clients=3).validation)
    assert all(np.array_equal(one, drawn[0]) for one in drawn)


def transcribed(alpha: float, clients: int, validation_size: int) -> tuple[list[list[int]], list[int]]:
    """The procedure of FedFisher's authors, step by step on lists."""
    state = np.random.get_state()
    np.random.seed(3)
    try:
        proportions = [np.random.dirichlet(np.repeat(alpha, CLASSES)) for _ in range(clients)]
        held: list[list[int]] = [[] for _ in range(clients)]
        for label in range(CLASSES):
            members = np.where(label == LABELS)[0]
            np.random.shuffle(members)
            total = sum(proportion[label] for proportion in proportions)
            given, cumulated = 0, 0.0
            for client in range(clients):
                cumulated += proportions[client][label] / total
                end = len(members) if client == clients - 1 else int(cumulated * len(members))
                held[client] += members[given:end].tolist()
                given = end
        for indices in held:
            np.random.shuffle(indices)
        return held, np.random.choice(len(LABELS), validation_size).tolist()
    finally:
        np.random.set_state(state)


@pytest.mark.parametrize(("alpha", "clients"), [(0.1, 5), (0.3, 8), (2.0, 3)])
def test_the_paper_split_is_that_of_its_authors(alpha: float, clients: int) -> None:
    held, validation = transcribed(alpha, clients, 500)
    for seed in (0, 1):
        partition = draw("paper", alpha=alpha, clients=clients, seed=seed, validation_size=500)
        assert [indices.tolist() for indices in partition.clients] == held
        assert partition.validation.tolist() == validation
    assert len(set(validation)) < len(validation)


def test_label_counts_are_counted_by_client() -> None:
    partition = draw("dirichlet_client")
    counts = partition.label_counts(LABELS, CLASSES)
    for client, held in enumerate(partition.clients):
        for label in range(CLASSES):
            assert counts[client, label] == sum(int(LABELS[index]) == label for index in held)


@pytest.mark.parametrize("scheme", ["dirichlet_client", "paper"])
def test_a_draw_that_gives_a_class_to_nobody_counts_as_too_small(scheme: str) -> None:
    # Below float64's least number, most shares are 0: seed 0 draws such a class.
    with pytest.raises(InputError, match="a client is left with 0 examples"):
        draw(scheme, alpha=0.001, clients=2, min_size=1, max_retries=1)


@pytest.mark.parametrize("seed", range(6))
def test_classes_that_no_example_has_are_dealt_to_no_client(seed: int) -> None:
    labels = LABELS[LABELS != 3]
    counts = draw("classes", clients=3, classes_per_client=3, seed=seed, labels=labels).label_counts(labels, CLASSES)
    assert [sum(count > 0 for count in row) for row in counts] == [3, 3, 3]
    assert np.array(counts).sum(0).tolist() == np.bincount(labels, minlength=CLASSES).tolist()


def test_classes_that_no_example_has_need_no_client() -> None:
    labels = np.array([50] * 8 + [0, 0])
    require_split(settings("classes", classes_per_client=2), setting("classes", clients=4), labels, validation_size=0)


@pytest.mark.parametrize("seed", range(8))
def test_a_client_with_exactly_its_fair_share_gets_no_more(seed: int) -> None:
    labels = np.repeat(np.arange(2), 10)
    partition = draw(
        "dirichlet_class", alpha=0.001, clients=2, seed=seed, labels=labels, validation_size=0, max_retries=1
    )
    assert [len(held) for held in partition.clients] == [10, 10]
