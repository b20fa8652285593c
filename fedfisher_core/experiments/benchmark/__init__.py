"""The benchmark: train every client once, aggregate with every method, and compare."""

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.contract import Experiment, experiments, late

experiments.add(
    "benchmark",
    Experiment(
        settings=BenchmarkSettings,
        row=Row,
        plan=late(f"{__name__}.plan:make_plan"),
        rows=late(f"{__name__}.plan:make_rows"),
        files=late(f"{__name__}.page:report_files"),
        runs=late(f"{__name__}.runs:make_runs"),
        tables=late(f"{__name__}.terminal:summary_tables"),
        shown=late(f"{__name__}.page:shown_of"),
        drawn_from=(PUBLISHED,),
    ),
)
