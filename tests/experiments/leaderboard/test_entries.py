import statistics
from pathlib import Path

import pytest

from fedfisher_core.experiments.benchmark.rows import Role
from fedfisher_core.experiments.leaderboard.entries import make_entries, read_reports
from tests.experiments.leaderboard.boards import entries_of, scored, within, write_report


def test_an_entry_is_a_method_over_its_seeds(tmp_path: Path) -> None:
    costs = {"server_seconds": 4.0, "upload_bits": 10, "download_bits": 20, "epsilon": 3.0}
    first = scored("kfac", 0.6, track="as_published", training={"epochs": 3, "steps": None}, **costs)
    costs = {"server_seconds": 2.0, "upload_bits": 30, "download_bits": 20, "epsilon": 5.0}
    second = scored("kfac", 0.8, track="as_published", training={"epochs": 3, "steps": None}, seed=1, **costs)
    entry = entries_of(tmp_path, first, second)["kfac"]
    assert (entry.report, entry.method, entry.kind, entry.num_networks) == ("one", "kfac", Role.ONE_NETWORK, 1)
    assert (entry.accuracy, entry.num_seeds) == (pytest.approx(0.7), 2)
    assert entry.accuracy_deviation == pytest.approx(0.02**0.5)
    assert (entry.server_seconds, entry.upload_bits, entry.download_bits, entry.epsilon) == (3.0, 20.0, 20.0, 5.0)
    assert (entry.track, entry.training, entry.wire_budget) == ("as_published", "epochs = 3", "fedavg")
    assert (entry.rank, entry.num_ranked) == (1.0, 1)


def test_objectives_are_settings_of_their_own(tmp_path: Path) -> None:
    write_report(tmp_path, "one", scored("a", 0.5), scored("a", 0.6, objective="fedprox"))
    entries = make_entries(read_reports([tmp_path]).benchmarks)
    assert [(one.objective, one.accuracy, one.rank, one.num_ranked) for one in entries] == [
        ("plain", 0.5, 1.0, 1),
        ("fedprox", 0.6, 1.0, 1),
    ]
    assert len({one.setting for one in entries}) == 2


def test_single_networks_are_ranked_and_ties_share(tmp_path: Path) -> None:
    # The first two have the same mean, but for its last bit.
    assert statistics.fmean([0.1, 0.2]) != 0.15
    found = entries_of(
        tmp_path,
        scored("a", 0.1, 0.2),
        scored("b", 0.15, 0.15),
        scored("c", 0.9, 0.8),
        scored("d", 0.05, 0.05),
        scored("ensemble", 1.0, reference=True),
        scored("local_mean", 0.95, reference=True),
    )
    assert {name: one.rank for name, one in found.items()} == {
        "c": 1.0,
        "a": 2.5,
        "b": 2.5,
        "d": 4.0,
        "ensemble": None,
        "local_mean": None,
    }
    assert {one.num_ranked for one in found.values()} == {4}
    assert list(found) == ["c", "a", "b", "d", "ensemble", "local_mean"]


def test_a_method_that_ran_with_fewer_seeds_has_no_rank(tmp_path: Path) -> None:
    found = entries_of(tmp_path, scored("a", 0.9, 0.3), scored("b", 0.85), scored("c", 0.4, 0.4))
    assert {name: (one.rank, one.num_ranked) for name, one in found.items()} == {
        "b": (None, 2),
        "a": (1.0, 2),
        "c": (2.0, 2),
    }


def test_budgets_are_settings_of_their_own_but_what_clients_have_alone_is_not(tmp_path: Path) -> None:
    found = entries_of(
        tmp_path,
        scored("fedavg", 0.4),
        scored("small", 0.3, **within(1000, "small")),
        scored("free", 0.6, **within("none", "free")),
        scored("odd", 0.2, method_settings={"wire": 3}),
        scored("alone", 0.5, reference=True, **within("fedavg", "local_mean")),
    )
    assert {name: (one.rank, one.num_ranked, one.wire_budget) for name, one in found.items()} == {
        "fedavg": (1.0, 1, "fedavg"),
        "small": (1.0, 1, "1000 bits"),
        "free": (1.0, 1, "none"),
        "odd": (1.0, 1, None),
        "alone (local_mean)": (None, 1, "fedavg"),
    }
    assert {name: one.below_local_mean for name, one in found.items()} == {
        "fedavg": True,
        "small": True,
        "free": False,
        "odd": True,
        "alone (local_mean)": None,
    }


def test_methods_are_compared_with_what_clients_have_alone_over_common_seeds(tmp_path: Path) -> None:
    found = entries_of(
        tmp_path,
        scored("local_mean", 0.5, 0.1, reference=True),
        # Above the mean of both seeds, and below the one that it ran with.
        scored("dense", 0.4),
        scored("equal", 0.1, 0.5),
        scored("ensemble", 0.2, 0.3, reference=True),
        scored("elsewhere", 0.1, seed=7),
    )
    assert {name: one.below_local_mean for name, one in found.items()} == {
        "local_mean": None,
        "dense": True,
        "equal": False,
        "ensemble": True,
        "elsewhere": None,
    }
    (alone,) = entries_of(tmp_path / "other", scored("fedavg", 0.1)).values()
    assert alone.below_local_mean is None


def test_ensembles_are_told_by_their_networks_and_old_ones_by_their_name(tmp_path: Path) -> None:
    found = entries_of(
        tmp_path,
        scored("fedavg", 0.1, num_networks=1),
        scored("votes", 0.1, num_networks=4),
        scored("mine", 0.1, reference=True, failed_clients=[2], **within("fedavg", "ensemble_logits")),
        scored("alone", 0.1, reference=True, num_networks=5, **within("fedavg", "local_mean")),
        scored("centralised", 0.1, reference=True, num_networks=1),
    )
    assert {name: (one.kind, one.num_networks) for name, one in found.items()} == {
        "fedavg": (Role.ONE_NETWORK, 1),
        "votes": (Role.ENSEMBLE, 4),
        "mine (ensemble_logits)": (Role.ENSEMBLE, 4),
        "alone (local_mean)": (Role.REFERENCE, 1),
        "centralised": (Role.REFERENCE, 1),
    }


def test_a_label_that_does_not_say_its_method_is_followed_by_it(tmp_path: Path) -> None:
    found = entries_of(
        tmp_path,
        scored("ma_echo", 0.1, **within("none", "ma_echo_official")),
        scored("fedfisher_kfac, 32 bits", 0.2, **within("none", "fedfisher_kfac")),
        scored("fedavg", 0.3, **within("none", "fedavg")),
    )
    assert set(found) == {"ma_echo (ma_echo_official)", "fedfisher_kfac, 32 bits", "fedavg"}


def test_settings_differ_by_report_and_split(tmp_path: Path) -> None:
    write_report(tmp_path, "a", scored("fedavg", 0.5), scored("fedavg", 0.6, alpha=None, partition="iid"))
    write_report(tmp_path, "b", scored("fedavg", 0.5))
    entries = make_entries(read_reports([tmp_path]).benchmarks)
    assert len({one.setting for one in entries}) == len(entries) == 3


def test_shifts_are_settings_of_their_own(tmp_path: Path) -> None:
    groups = [scored("fedavg", 0.5), scored("fedavg", 0.4, shift="rotation", shift_strength=45.0)]
    write_report(tmp_path, "one", *groups, scored("fedavg", 0.3, shift="rotation", shift_strength=60.0))
    entries = make_entries(read_reports([tmp_path]).benchmarks)
    assert [(one.shift, one.accuracy, one.rank) for one in entries] == [
        (None, 0.5, 1.0),
        ("rotation 45", 0.4, 1.0),
        ("rotation 60", 0.3, 1.0),
    ]
    assert len({one.setting for one in entries}) == 3


def test_a_label_that_holds_its_method_within_another_word_is_followed_by_it(tmp_path: Path) -> None:
    found = entries_of(
        tmp_path,
        scored("fedavgm", 0.1, **within("none", "fedavg")),
        scored("my_ties", 0.1, **within("none", "ties")),
    )
    assert set(found) == {"fedavgm (fedavg)", "my_ties (ties)"}
