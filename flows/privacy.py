"""The privacy attack: train the federations, attack one client of each through every method, report and record."""

import re
from collections.abc import Sequence
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.runtime import flow_run

from fedfisher_core.attack.experiment import PrivacyAttack
from fedfisher_core.attack.rows import AttackRow, summarise
from fedfisher_core.reporting.summary import Measure
from flows.attack_plan import make_attack_plan
from flows.attack_results import make_galleries, make_pictures, make_rows
from flows.attack_work import carry_out, train
from flows.pool import allow_gpus
from flows.provenance import command, git_commit
from tasks.attack import record_attack, report_attack

_DEFAULTS = PrivacyAttack()


@flow(name="privacy-attack", flow_run_name="{settings.name}", persist_result=False)
def privacy_attack(settings: PrivacyAttack = _DEFAULTS) -> str:
    """Run a privacy attack from data to report.

    Args:
        settings: the experiment.

    Returns:
        The report's folder.
    """
    plan = make_attack_plan(settings)
    allow_gpus()
    trials = [trial for attacked in plan.federations for trial in train(attacked)]
    found = carry_out(plan, trials)
    rows = make_rows(plan, trials, found)
    galleries = make_galleries(plan, trials, found)
    folder = report_attack(settings=settings, command=command("privacy-attack"), rows=rows, galleries=galleries)
    record_attack(
        settings=settings,
        rows=rows,
        pictures=make_pictures(found),
        galleries=galleries,
        tags={"flow_run": str(flow_run.id), "git_commit": git_commit()},
    )
    _show(settings.name, rows, folder)
    return str(folder)


def _show(name: str, rows: Sequence[AttackRow], folder: Path) -> None:
    """Show the mean attack accuracies and the report in Prefect's UI."""
    key = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    table = [
        {
            "method": summary.method,
            "case": summary.case,
            "epsilon": "none" if summary.epsilon is None else f"{summary.epsilon:g}",
            "attack accuracy": f"{100 * Measure.of(summary.values('attack_accuracy')).mean:.2f}",
        }
        for summary in summarise(rows)
    ]
    create_table_artifact(table, key=f"{key}-results", description=f"Attack accuracy in per cent, {name}")
    create_link_artifact((folder / "index.html").absolute().as_uri(), link_text="report", key=f"{key}-report")
