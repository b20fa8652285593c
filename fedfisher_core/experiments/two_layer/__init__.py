"""The two-layer experiment: the theory of FedFisher's Section 3, measured."""

from fedfisher_core.experiments.contract import Experiment, experiments, late
from fedfisher_core.experiments.two_layer.rows import TwoLayerRow
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings

experiments.add(
    "two_layer",
    Experiment(
        settings=TwoLayerSettings,
        row=TwoLayerRow,
        plan=late(f"{__name__}.plan:make_plan"),
        rows=late(f"{__name__}.plan:make_rows"),
        files=late(f"{__name__}.page:report_files"),
        runs=late(f"{__name__}.page:make_runs"),
        tables=late(f"{__name__}.findings:error_tables"),
    ),
)
