"""The privacy attack: what does a server learn of one client's images?"""

from fedfisher_core.experiments.contract import Experiment, experiments, late
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings

experiments.add(
    "privacy_attack",
    Experiment(
        settings=AttackSettings,
        row=AttackRow,
        plan=late(f"{__name__}.plan:make_plan"),
        rows=late(f"{__name__}.plan:make_rows"),
        files=late(f"{__name__}.page:report_files"),
        runs=late(f"{__name__}.page:make_runs"),
        tables=late(f"{__name__}.summary:attack_tables"),
        shown=late(f"{__name__}.page:shown_of"),
    ),
)
