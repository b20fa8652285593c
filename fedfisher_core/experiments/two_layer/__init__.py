"""The two-layer experiment: the theory of FedFisher's Section 3, measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.experiments.contract import Experiment, experiment
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.reporting.tables import Table
from fedfisher_core.walk import Outcome

if TYPE_CHECKING:
    from fedfisher_core.experiments.two_layer.plan import TwoLayerPlan
    from fedfisher_core.experiments.two_layer.rows import TwoLayerRow


@experiment
class TwoLayer(Experiment[TwoLayerSettings, "TwoLayerPlan"]):
    """The training error of FedFisher against width and local steps."""

    name = "two_layer"
    settings = TwoLayerSettings

    def plan(self, settings: TwoLayerSettings) -> "TwoLayerPlan":
        """See `Experiment.plan`."""
        from fedfisher_core.experiments.two_layer.plan import make_plan

        return make_plan(settings)

    def rows(self, plan: "TwoLayerPlan", outcome: Outcome) -> "Sequence[TwoLayerRow]":
        """See `Experiment.rows`."""
        from fedfisher_core.experiments.two_layer.plan import make_rows

        return make_rows(plan, outcome)

    def files(
        self, plan: "TwoLayerPlan", outcome: Outcome, rows: "Sequence[TwoLayerRow]", page: PageData
    ) -> Mapping[str, bytes]:
        """See `Experiment.files`."""
        from fedfisher_core.experiments.two_layer.page import report_files

        return report_files(rows, page)

    def runs(self, plan: "TwoLayerPlan", outcome: Outcome, rows: "Sequence[TwoLayerRow]") -> Runs:
        """See `Experiment.runs`."""
        from fedfisher_core.experiments.two_layer.runs import make_runs

        return make_runs(plan.settings.two_layer, rows)

    def read(self, path: Path) -> "Sequence[TwoLayerRow]":
        """See `Experiment.read`."""
        from fedfisher_core.experiments.two_layer.rows import read_rows

        return read_rows(path)

    def tables(self, rows: "Sequence[TwoLayerRow]") -> Sequence[Table]:
        """See `Experiment.tables`."""
        from fedfisher_core.experiments.two_layer.terminal import error_tables

        return error_tables(rows)
