"""The benchmark: train every client once, aggregate with every method, and compare."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.contract import Experiment, experiment
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.reporting.tables import Table
from fedfisher_core.walk import Outcome

if TYPE_CHECKING:
    from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
    from fedfisher_core.experiments.benchmark.rows import Row


@experiment
class Benchmark(Experiment[BenchmarkSettings, "BenchmarkPlan"]):
    """Every method on the same uploads."""

    name = "benchmark"
    settings = BenchmarkSettings
    drawn_from = (PUBLISHED,)

    def plan(self, settings: BenchmarkSettings) -> "BenchmarkPlan":
        """See `Experiment.plan`."""
        from fedfisher_core.experiments.benchmark.plan import make_plan

        return make_plan(settings)

    def rows(self, plan: "BenchmarkPlan", outcome: Outcome) -> "Sequence[Row]":
        """See `Experiment.rows`."""
        from fedfisher_core.experiments.benchmark.results import make_rows

        return make_rows(plan, outcome)

    def files(
        self, plan: "BenchmarkPlan", outcome: Outcome, rows: "Sequence[Row]", page: PageData
    ) -> Mapping[str, bytes]:
        """See `Experiment.files`."""
        from fedfisher_core.experiments.benchmark.page import report_files

        return report_files(plan, outcome, rows, page)

    def runs(self, plan: "BenchmarkPlan", outcome: Outcome, rows: "Sequence[Row]") -> Runs:
        """See `Experiment.runs`."""
        from fedfisher_core.experiments.benchmark.runs import make_runs

        return make_runs(plan, outcome, rows)

    def read(self, path: Path) -> "Sequence[Row]":
        """See `Experiment.read`."""
        from fedfisher_core.experiments.benchmark.rows import read_results

        return read_results(path)

    def tables(self, rows: "Sequence[Row]") -> Sequence[Table]:
        """See `Experiment.tables`."""
        from fedfisher_core.experiments.benchmark.terminal import summary_tables

        return summary_tables(rows)
