"""The toy regression of FedFish's Section 5.1: FedAvg and FedFish where clients' inputs overlap or not."""

from fedfisher_core.experiments.contract import Experiment, experiments, late
from fedfisher_core.experiments.fedfish_toy.rows import FedFishToyRow
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings

experiments.add(
    "fedfish_toy",
    Experiment(
        settings=FedFishToySettings,
        row=FedFishToyRow,
        plan=late(f"{__name__}.plan:make_plan"),
        rows=late(f"{__name__}.plan:make_rows"),
        files=late(f"{__name__}.page:report_files"),
        runs=late(f"{__name__}.page:make_runs"),
        tables=late(f"{__name__}.summary:error_tables"),
        shown=late(f"{__name__}.page:shown_of"),
    ),
)
