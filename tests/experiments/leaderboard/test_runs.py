from pathlib import Path

from fedfisher_core.experiments.leaderboard.page import make_runs
from fedfisher_core.experiments.leaderboard.ranking import MeanRanks


def test_the_run_has_the_mean_ranks_and_the_table() -> None:
    best = MeanRanks({"fedavg": 1.5, "diag, ours 1/2": 2.0, "diag; ours 1/2": 2.5}, 4)
    runs = make_runs(best, num_entries=9, num_reports=3, table=b"a,b\n", out=Path("results/leaderboard"))
    (run,) = runs.single
    assert not runs.summary
    assert run.params == {"folder": "results/leaderboard"}
    assert run.metrics == {
        "num_entries": 9,
        "num_reports": 3,
        "num_common_settings": 4,
        "mean_rank_fedavg": 1.5,
        "mean_rank_diag_ours_1_2": 2.0,
        "mean_rank_diag_ours_1_2.2": 2.5,
    }
    assert (run.folder, run.draw()) == ("tables", {"results.csv": b"a,b\n"})


def test_another_table_is_another_content_of_the_same_run() -> None:
    best, shared = MeanRanks({}, 0), {"num_entries": 1, "num_reports": 1, "out": Path("a")}
    first, same, other = (make_runs(best, table=table, **shared).single[0] for table in (b"1", b"1", b"2"))
    assert first.content == same.content != other.content
    assert first.identity == other.identity
