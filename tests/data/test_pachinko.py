from collections import Counter

import numpy as np
import pytest

from fedfisher_core.data.natural import Indices, allocate, coarse_of_labels
from fedfisher_core.data.partitions import Partition, split
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import PartitionSettings, SeededSetting

# Four coarse labels of three labels each, which are not neighbours.
COARSE = tuple(label % 4 for label in range(12))
CLASSES = len(COARSE)


def labels(each: int, *, seed: int = 0) -> Indices:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(CLASSES), each))


def draw(of: Indices, count: int, alpha: float, beta: float, *, seed: int = 0) -> list[Indices]:
    return allocate(np.random.default_rng(seed), of, COARSE, count, alpha, beta)


def partition(of: Indices, *, seed: int = 0, coarse: tuple[int, ...] = COARSE) -> Partition:
    settings = PartitionSettings(scheme=("pachinko",), alpha=(0.1,), beta=10.0, min_size=1)
    setting = SeededSetting(dataset="a", model="b", scheme="pachinko", alpha=0.1, clients=7, seed=seed)
    return split(settings, setting, of, classes=CLASSES, validation_size=5, coarse=coarse)


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 10.0), (100.0, 0.05), (0.001, 0.001)])
@pytest.mark.parametrize("count", [1, 7, 40])
def test_every_example_has_one_client_and_clients_have_as_many(count: int, alpha: float, beta: float) -> None:
    of = labels(31)
    held = draw(of, count, alpha, beta)
    assert len(held) == count
    assert sorted(np.concatenate(held).tolist()) == list(range(len(of)))
    sizes = [len(one) for one in held]
    assert max(sizes) - min(sizes) <= 1


def test_labels_of_any_number_of_examples_are_drawn_without_replacement() -> None:
    of = np.repeat(np.arange(CLASSES), [1, 50, 3, 0, 9, 2, 80, 4, 4, 0, 5, 7])
    held = draw(of, 5, 0.5, 1.0)
    assert Counter(np.concatenate([of[one] for one in held]).tolist()) == Counter(of.tolist())


def test_the_seed_decides_and_who_holds_what_is_random_within_a_label() -> None:
    of = labels(30)
    one, again, other = (partition(of, seed=seed) for seed in (1, 1, 2))
    assert one.digest() == again.digest() != other.digest()
    # Not the first of each label to the first client.
    first = one.clients[0]
    label = Counter(of[first].tolist()).most_common(1)[0][0]
    own = np.sort(first[of[first] == label])
    assert not np.array_equal(own, np.flatnonzero(of == label)[: len(own)])


def test_the_split_stays_as_it_is() -> None:
    assert partition(np.arange(240, dtype=np.int64) % CLASSES).digest() == "88fb29d1abb2afe9"


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 2.0), (3.0, 0.4)])
def test_shares_have_the_moments_of_both_levels(alpha: float, beta: float) -> None:
    # The first 100 of 300 clients exhaust no label of 5,000, so that their shares are those that they drew. A share of
    # Dir(a) over n has the variance v = (n - 1) / (n^2 (n a + 1)); in N examples, ((1 - 1/n) / n - v) / N is added.
    of, (tops, subs, sizes) = labels(5000), ([], [], [])
    for seed in range(2):
        for held in draw(of, 300, alpha, beta, seed=seed)[:100]:
            counts = np.bincount(of[held], minlength=CLASSES)
            below = [counts[[label for label in range(CLASSES) if COARSE[label] == one]] for one in range(4)]
            tops.append([own.sum() / len(held) for own in below])
            sizes += [own.sum() for own in below if own.sum() >= 30]
            subs += [own / own.sum() for own in below if own.sum() >= 30]
    for shares, size, concentration, drawn in (
        (tops, 4, alpha, 1 / 200),
        (subs, 3, beta, np.mean(1 / np.array(sizes))),
    ):
        variance = (size - 1) / (size**2 * (size * concentration + 1))
        variance += ((1 - 1 / size) / size - variance) * drawn
        error = (variance / len(shares)) ** 0.5
        assert np.mean(shares, 0) == pytest.approx(np.full(size, 1 / size), abs=4 * error)
        assert np.var(shares) == pytest.approx(variance, rel=0.2)


def test_a_label_that_runs_out_leaves_its_share_to_those_below_the_same_coarse_label() -> None:
    # One coarse label alone has a label of 6 examples and two of about 300. With beta this large each label would have
    # a third of the 300 examples of the first client, and the two others share what the first lacks.
    of = np.repeat([0, 4, 8], [6, 300, 294])
    counts = [np.bincount(of[draw(of, 2, 1.0, 1e6, seed=seed)[0]], minlength=9)[[0, 4, 8]] for seed in range(40)]
    assert (np.array(counts)[:, 0] == 6).all()
    assert np.array(counts)[:, 1:].mean(0) == pytest.approx([147, 147], abs=5)


def test_a_coarse_label_that_runs_out_leaves_the_others_in_their_proportions() -> None:
    # The coarse labels 0 and 1 have 5 examples each, 2 and 3 have 400: nearly all of a client's 400 are of these.
    of = np.repeat([0, 1, 2, 3], [5, 5, 400, 400])
    counts = [np.bincount(of[draw(of, 2, 1e6, 1.0, seed=seed)[0]], minlength=4) for seed in range(40)]
    assert (np.array(counts)[:, :2] == 5).all()
    assert np.array(counts)[:, 2:].mean(0) == pytest.approx([197.5, 197.5], abs=5)


def test_the_last_client_holds_what_is_left() -> None:
    of = labels(10)
    held = draw(of, 12, 0.1, 10.0)
    before = np.concatenate(held[:-1])
    assert sorted(held[-1].tolist()) == sorted(set(range(len(of))) - set(before.tolist()))


def test_one_coarse_label_is_found_for_each_label() -> None:
    of = np.array([0, 2, 0, 2, 3])
    assert coarse_of_labels(of, np.array([7, 5, 7, 5, 7]), 4, where="here") == (7, -1, 5, 7)
    with pytest.raises(InputError, match=r"^here: label 2 has the coarse labels 4, 5; allowed: one a label"):
        coarse_of_labels(of, np.array([7, 5, 7, 4, 7]), 4, where="here")


def test_data_without_coarse_labels_is_refused() -> None:
    with pytest.raises(InputError, match=r"partition\.scheme=pachinko: the data has no coarse labels"):
        partition(labels(30), coarse=())


@pytest.mark.parametrize("given", [{"scheme": "pachinko"}, {"scheme": "iid", "beta": 10.0}])
def test_beta_belongs_to_pachinko_allocation(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"partition\.beta must be set with partition.scheme=pachinko, and only then"):
        PartitionSettings(**given)
