"""The privacy attack: what does a server learn of one client's images?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.experiments.attack.settings import AttackSettings
from fedfisher_core.experiments.contract import Experiment, experiment
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.reporting.tables import Table
from fedfisher_core.walk import Outcome

if TYPE_CHECKING:
    from fedfisher_core.experiments.attack.plan import AttackPlan
    from fedfisher_core.experiments.attack.rows import AttackRow


@experiment
class Attack(Experiment[AttackSettings, "AttackPlan"]):
    """A model inversion of one client through what each method lets the server see."""

    name = "privacy_attack"
    settings = AttackSettings

    def plan(self, settings: AttackSettings) -> "AttackPlan":
        """See `Experiment.plan`."""
        from fedfisher_core.experiments.attack.plan import make_plan

        return make_plan(settings)

    def rows(self, plan: "AttackPlan", outcome: Outcome) -> "Sequence[AttackRow]":
        """See `Experiment.rows`."""
        from fedfisher_core.experiments.attack.results import make_rows

        return make_rows(plan, outcome)

    def files(
        self, plan: "AttackPlan", outcome: Outcome, rows: "Sequence[AttackRow]", page: PageData
    ) -> Mapping[str, bytes]:
        """See `Experiment.files`."""
        from fedfisher_core.experiments.attack.galleries import make_galleries
        from fedfisher_core.experiments.attack.page import report_files

        return report_files(rows, make_galleries(plan, outcome), page)

    def runs(self, plan: "AttackPlan", outcome: Outcome, rows: "Sequence[AttackRow]") -> Runs:
        """See `Experiment.runs`."""
        from fedfisher_core.experiments.attack.runs import make_runs

        return make_runs(plan, outcome, rows)

    def read(self, path: Path) -> "Sequence[AttackRow]":
        """See `Experiment.read`."""
        from fedfisher_core.experiments.attack.rows import read_rows

        return read_rows(path)

    def tables(self, rows: "Sequence[AttackRow]") -> Sequence[Table]:
        """See `Experiment.tables`."""
        from fedfisher_core.experiments.attack.terminal import attack_tables

        return attack_tables(rows)
