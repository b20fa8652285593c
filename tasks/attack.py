"""Tasks of a privacy attack: judge, prior, inversion, bounds, report, MLflow."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path

from fedfisher_core.attack.experiment import PrivacyAttack
from fedfisher_core.attack.figures import Gallery, budget_figure, case_figure, gallery_figure
from fedfisher_core.attack.page import AttackReport, write_attack
from fedfisher_core.attack.rows import AttackRow, summarise
from fedfisher_core.reporting.drawing import to_png
from fedfisher_core.reporting.summary import Measure
from fedfisher_core.settings import Cell
from fedfisher_core.steps import attack as steps
from fedfisher_core.steps import attacker
from fedfisher_core.steps.attack import Attacked
from fedfisher_core.steps.attacker import AttackContext
from fedfisher_core.store import Artifact
from tasks.options import computing, step
from tasks.reporting import page_of
from tasks.runs import Record, digest, write_runs

_METRICS = (
    "attack_accuracy",
    "mean_attack_accuracy",
    "feature_distance",
    "accuracy",
    "upload_bits",
    "attack_seconds",
    "gan_seconds",
    "evaluator_accuracy",
)
_DPI = 80


@step(run_name="evaluator")
def train_judge(context: AttackContext, data: Artifact) -> Artifact:
    """Train the classifier that judges reconstructions."""
    with computing(context):
        return attacker.train_judge(context, data)


@step(run_name="GAN without label {target}: {cell.label}")
def train_prior(context: AttackContext, cell: Cell, target: int, data: Artifact, partition: Artifact) -> Artifact:
    """Train the attacker's generative prior."""
    with computing(context):
        return attacker.train_prior(context, cell, target, data, partition)


@step(run_name="attack on label {attacked.target} by {attacked.bound.method.name}: {attacked.cell.label}")
def attack(context: AttackContext, attacked: Attacked, prior: Artifact, judge: Artifact) -> Artifact:
    """Reconstruct a client's images from what the server sees."""
    with computing(context):
        return steps.attack(context, attacked, prior, judge)


@step(run_name="floors and ceiling of label {target}: {cell.label}")
def measure_bounds(
    context: AttackContext,
    cell: Cell,
    target: int,
    data: Artifact,
    partition: Artifact,
    prior: Artifact,
    judge: Artifact,
) -> Artifact:
    """Measure images of noise, of the prior by itself, and real ones."""
    with computing(context):
        return steps.measure_bounds(context, cell, target, data, partition, prior, judge)


@step(run_name="report")
def report_attack(
    settings: PrivacyAttack, command: str, rows: Sequence[AttackRow], galleries: Sequence[Gallery]
) -> Path:
    """Write results.json, results.csv, index.html and the reconstructions.

    Args:
        settings: the experiment.
        command: what was run.
        rows: the results.
        galleries: images of the best restarts.

    Returns:
        The report's folder.
    """
    shown = settings.model_dump(mode="json", exclude={"report"})
    shown["methods"] = {label: chosen or "defaults" for label, chosen in settings.methods.items()}
    report = AttackReport(
        rows=rows, galleries=galleries, **page_of(settings, settings.report, command=command, shown=shown)
    )
    return write_attack(report, settings.run.reports / settings.name)


@step(run_name="record in MLflow")
def record_attack(
    settings: PrivacyAttack,
    rows: Sequence[AttackRow],
    pictures: Mapping[str, Gallery],
    galleries: Sequence[Gallery],
    tags: Mapping[str, str],
) -> int:
    """Write one run for every row, and one summary run for every method and privacy budget.

    Args:
        settings: the experiment.
        rows: the results.
        pictures: reconstructed images by the artifact that holds them.
        galleries: those of the report.
        tags: on every run.

    Returns:
        How many runs were written; those that had not changed were not.
    """
    return write_runs(
        settings.tracking,
        settings.name,
        single=_trial_records(rows, pictures),
        summary=_summary_records(rows, galleries),
        tags=tags,
    )


def _trial_records(rows: Sequence[AttackRow], pictures: Mapping[str, Gallery]) -> Iterator[Record]:
    for row in rows:
        budget = "" if row.epsilon is None else f" e={row.epsilon:g}"
        yield Record(
            name=f"{row.method}{budget} label={row.target_label} s={row.seed}",
            params=_params(row) | {"method": row.method, "target_label": str(row.target_label), "seed": str(row.seed)},
            metrics={name: float(value) for name in _METRICS if (value := getattr(row, name)) is not None},
            tags={
                "artifact": row.artifact,
                "case": row.case,
                "method_settings": json.dumps(row.method_settings),
                "reference": str(row.reference).lower(),
            },
            drawn_from=(row.artifact,),
            draw=partial(_picture, pictures.get(row.artifact)),
        )


def _picture(gallery: Gallery | None) -> dict[str, bytes]:
    return {} if gallery is None else {"reconstructions.png": to_png(gallery_figure(gallery), dpi=_DPI)}


def _summary_records(rows: Sequence[AttackRow], galleries: Sequence[Gallery]) -> Iterator[Record]:
    content = digest([asdict(row) for row in rows])
    charts = cache(partial(_charts, rows, galleries))
    for summary in summarise(rows):
        metrics = {}
        for name in _METRICS:
            values = summary.values(name)
            if values:
                measure = Measure.of(values)
                metrics[name] = measure.mean
                if measure.deviation is not None:
                    metrics[f"{name}_deviation"] = measure.deviation
        budget = "" if summary.epsilon is None else f" e={summary.epsilon:g}"
        yield Record(
            name=f"{summary.method}{budget}",
            params=_params(summary.rows[0]) | {"method": summary.method},
            metrics=metrics,
            tags={"case": summary.case, "reference": str(summary.reference).lower()},
            drawn_from=(content,),
            draw=charts,
        )


def _charts(rows: Sequence[AttackRow], galleries: Sequence[Gallery]) -> dict[str, bytes]:
    charts = {
        f"reconstructions-{number}.png": to_png(gallery_figure(gallery), dpi=_DPI)
        for number, gallery in enumerate(galleries, start=1)
    }
    if len({(row.dataset, row.model, row.epsilon) for row in rows if not row.reference}) == 1:
        charts["attack_accuracy.png"] = to_png(case_figure(rows), dpi=_DPI)
    elif len({(row.dataset, row.model) for row in rows if not row.reference}) == 1:
        charts["by_epsilon.png"] = to_png(budget_figure(rows), dpi=_DPI)
    return charts


def _params(row: AttackRow) -> dict[str, str]:
    return {
        "dataset": row.dataset,
        "model": row.model or "none",
        "alpha": f"{row.alpha:g}",
        "clients": str(row.num_clients),
        "epsilon": "none" if row.epsilon is None else f"{row.epsilon:g}",
    }
