from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfisher_core.data.natural import makers_of, require_column
from fedfisher_core.data.partitions import Partition, require_split, split
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import PartitionScheme, PartitionSettings, SeededSetting

# Three makers of 20, 50 and 31 examples, in no order.
GROUPS = np.random.default_rng(3).permutation(np.repeat([0, 1, 2], [20, 50, 31]))
LABELS = np.arange(len(GROUPS)) % 4
NAMES = ("ann", "bob", "cy")


def setting(scheme: PartitionScheme, clients: int, seed: int = 0) -> SeededSetting:
    return SeededSetting(dataset="a", model="b", scheme=scheme, alpha=None, clients=clients, seed=seed)


def draw(
    scheme: PartitionScheme, clients: int, *, seed: int = 0, groups: NDArray[np.int64] | None = GROUPS, **changes: Any
) -> Partition:
    settings = PartitionSettings(**{"scheme": scheme, "column": "who", "min_size": 1, **changes})
    sizes = None if groups is None else dict(zip(NAMES, np.bincount(groups).tolist(), strict=True))
    return split(
        settings, setting(scheme, clients, seed), LABELS, classes=4, validation_size=5, groups=groups, group_sizes=sizes
    )


@pytest.mark.parametrize("seed", range(4))
def test_as_many_clients_as_makers_are_the_makers_in_their_order(seed: int) -> None:
    held = draw("column", 3, seed=seed).clients
    for client in range(3):
        assert sorted(held[client].tolist()) == np.flatnonzero(client == GROUPS).tolist()
    # The seed decides the order of a client's examples alone.
    assert not np.array_equal(held[1], draw("column", 3, seed=seed + 1).clients[1])


def test_fewer_clients_hold_whole_makers_that_the_seed_puts_together() -> None:
    together = set()
    for seed in range(20):
        makers = makers_of(draw("column", 2, seed=seed).clients, GROUPS)
        assert sorted(makers[0] + makers[1]) == [0, 1, 2]
        together.add(tuple(makers[0]))
    assert together == {(0, 1), (0, 2), (1, 2)}


@pytest.mark.parametrize("each", [1, 2, 5])
def test_each_domain_has_as_many_clients_which_share_it_evenly(each: int) -> None:
    found = draw("domain", 3 * each)
    assert makers_of(found.clients, GROUPS) == [[client // each] for client in range(3 * each)]
    assert sorted(np.concatenate(found.clients).tolist()) == list(range(len(GROUPS)))
    for domain, size in enumerate((20, 50, 31)):
        sizes = [len(held) for held in found.clients[domain * each : (domain + 1) * each]]
        assert sum(sizes) == size
        assert max(sizes) - min(sizes) <= 1


def test_the_seed_decides_who_of_a_domain_holds_what() -> None:
    one, again, other = (draw("domain", 6, seed=seed) for seed in (1, 1, 2))
    assert one.digest() == again.digest() != other.digest()
    assert set(one.clients[0].tolist()) != set(other.clients[0].tolist())


def test_a_domain_is_shared_at_random() -> None:
    first = np.sort(draw("domain", 6).clients[2])
    assert not np.array_equal(first, np.flatnonzero(GROUPS == 1)[: len(first)])


@pytest.mark.parametrize(
    ("scheme", "clients", "changes", "message"),
    [
        ("column", 4, {}, r"partition\.clients=4 exceeds the 3 values of partition\.column='who'"),
        (
            "column",
            3,
            {"min_size": 21},
            r"partition\.min_size=21 asks for 21 training examples, but 'ann' of partition\.column='who' has 20",
        ),
        (
            "domain",
            4,
            {},
            r"partition\.clients=4 with partition\.scheme=domain: partition\.column='who' has 3 values, each for as "
            r"many clients; allowed: multiples of 3",
        ),
        (
            "domain",
            6,
            {"min_size": 11},
            r"partition\.min_size=11 asks for 22 training examples for 2 clients, but 'ann' of "
            r"partition\.column='who' has 20",
        ),
        ("largest", 4, {}, r"partition\.clients=4 exceeds the 3 values of partition\.column='who'"),
        (
            "largest",
            2,
            {"min_size": 32},
            r"partition\.min_size=32 asks for 32 training examples, but 'cy' of partition\.column='who' has 31",
        ),
        ("largest", 3, {"groups": None}, r"partition\.column='who': the data has no such column"),
        ("column", 3, {"groups": None}, r"partition\.column='who': the data has no such column"),
        ("domain", 3, {"groups": None}, r"partition\.column='who': the data has no such column"),
    ],
)
def test_what_makers_leave_no_room_for_is_refused(
    scheme: PartitionScheme, clients: int, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        draw(scheme, clients, **changes)


def test_the_smallest_maker_that_will_do_is_taken() -> None:
    assert len(draw("column", 3, min_size=20).clients[0]) == 20
    # Of the largest two, the smallest of all is none.
    assert [len(held) for held in draw("largest", 2, min_size=31).clients] == [50, 31]
    assert [len(held) for held in draw("domain", 6, min_size=10).clients[:2]] == [10, 10]


@pytest.mark.parametrize(
    "given", [{"scheme": "column"}, {"scheme": "domain"}, {"scheme": "largest"}, {"scheme": "iid", "column": "who"}]
)
def test_a_column_belongs_to_the_schemes_that_split_by_one(given: dict[str, str]) -> None:
    with pytest.raises(
        ValueError, match=r"partition\.column must be set with partition.scheme=column or domain or largest, and"
    ):
        PartitionSettings(**given)


@pytest.mark.parametrize("scheme", ["column", "domain"])
def test_a_maker_of_test_examples_alone_is_refused_where_all_makers_are_held(scheme: PartitionScheme) -> None:
    with pytest.raises(InputError, match=r"partition\.column='who': 'bob' has test examples, but none of the training"):
        count_only(scheme, 2, {"ann": 60, "bob": 0, "cy": 41})
    count_only(scheme, 2, {"ann": 60, "cy": 41})


def test_the_largest_makers_are_chosen_among_those_with_training_examples() -> None:
    count_only("largest", 2, {"ann": 60, "bob": 0, "cy": 41})
    with pytest.raises(InputError, match=r"partition\.clients=3 exceeds the 2 values"):
        count_only("largest", 3, {"ann": 60, "bob": 0, "cy": 41})


def test_the_sizes_of_the_largest_makers_bound_the_validation_set() -> None:
    sizes = {"ann": 20, "bob": 50, "cy": 31}
    count_only("largest", 2, sizes, validation_size=81)
    message = (
        r"data\.validation_size=82 exceeds the 81 training examples that clients hold, with the 2 largest values of "
        r"partition\.column='who'; allowed: up to 81"
    )
    with pytest.raises(InputError, match=message):
        count_only("largest", 2, sizes, validation_size=82)
    count_only("column", 2, sizes, validation_size=82)


def count_only(scheme: PartitionScheme, clients: int, groups: dict[str, int], validation_size: int = 0) -> None:
    """Check what is known before examples are decoded."""
    settings = PartitionSettings(scheme=scheme, column="who", min_size=1)
    labels = np.bincount(LABELS)
    require_split(settings, setting(scheme, clients), labels, validation_size=validation_size, groups=groups)


def test_a_small_maker_is_refused_only_as_a_client_of_its_own() -> None:
    settings = PartitionSettings(scheme="column", column="maker", min_size=10)
    sizes = {"a": 3, "b": 50, "c": 40}
    require_column(settings, 2, sizes)
    with pytest.raises(InputError, match=r"'a' of partition\.column='maker' has 3"):
        require_column(settings, 3, sizes)
