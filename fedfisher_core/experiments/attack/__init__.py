"""The privacy attack: what does a server learn of one client's images?"""

from fedfisher_core.experiments.attack.rows import AttackRow
from fedfisher_core.experiments.attack.settings import AttackSettings
from fedfisher_core.experiments.contract import Experiment, experiments, late

experiments.add(
    "privacy_attack",
    Experiment(
        settings=AttackSettings,
        row=AttackRow,
        plan=late(f"{__name__}.plan:make_plan"),
        rows=late(f"{__name__}.results:make_rows"),
        files=late(f"{__name__}.page:report_files"),
        runs=late(f"{__name__}.runs:make_runs"),
        tables=late(f"{__name__}.summary:attack_tables"),
    ),
)
