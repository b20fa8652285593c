"""Which runs hold their global network."""

from pathlib import Path

import pytest

from fedfisher_core.engine.store import Store
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings.work import KeptNetworks
from flows.kept_networks import with_networks
from tests.experiments.benchmark.samples import make_row

ROWS = [
    make_row("fedavg", seed=0, accuracy=0.5),
    # The best seed is the second, and the best method has the highest mean.
    *(make_row("regmean", seed=seed, accuracy=accuracy) for seed, accuracy in enumerate((0.6, 0.8))),
    make_row("ensemble", reference=True, accuracy=0.9, num_networks=5),
    # A combiner alone makes no network, not even of one client's.
    make_row("fens", reference=True, accuracy=0.97, num_networks=1),
    make_row("fafi", reference=True, accuracy=0.96, num_networks=1),
    make_row("local_mean", reference=True, accuracy=0.4),
    make_row("centralised", reference=True, accuracy=0.95),
]


def held(kept: KeptNetworks, rows: list[Row], folder: Path) -> dict[tuple[str, int], bool]:
    """Methods and seeds of the runs that hold a network, and whether it is the best."""
    runs = Runs([Record(row.method, {"seed": str(row.seed)}, {}, {}) for row in rows], [])
    holding = with_networks(runs, rows, Store(folder), kept).single
    found = {(row.method, row.seed): one.network for row, one in zip(rows, holding, strict=True)}
    assert all(one.tags["method"] == method for (method, _), one in found.items() if one is not None)
    return {which: one.is_best for which, one in found.items() if one is not None}


@pytest.mark.parametrize("rows", [ROWS, ROWS[::-1]])
def test_the_best_is_the_first_seed_of_the_method_with_the_highest_mean(rows: list[Row], tmp_path: Path) -> None:
    assert held("best", rows, tmp_path) == {("regmean", 0): True}


def test_all_runs_with_one_global_network_hold_it(tmp_path: Path) -> None:
    others = {("fedavg", 0): False, ("regmean", 1): False, ("centralised", 0): False}
    assert held("all", ROWS, tmp_path) == {("regmean", 0): True, **others}


def test_no_run_holds_a_network_where_none_is_wanted(tmp_path: Path) -> None:
    assert held("none", ROWS, tmp_path) == {}


def test_references_alone_have_no_best(tmp_path: Path) -> None:
    assert held("best", ROWS[3:], tmp_path) == {}


def test_a_method_that_lacks_a_seed_is_not_the_best(tmp_path: Path) -> None:
    lucky = make_row("fedfish", seed=0, accuracy=0.9)
    assert held("best", [*ROWS, lucky], tmp_path) == {("regmean", 0): True}
