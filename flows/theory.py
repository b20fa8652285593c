"""The two-layer experiment: measure every seed, report and record."""

import re
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.runtime import flow_run

from fedfisher_core.reporting.formats import significant
from fedfisher_core.steps.theory import TwoLayerContext, read_seed
from fedfisher_core.store import Artifact
from fedfisher_core.theory.curves import curve_of
from fedfisher_core.theory.rows import METHODS, TwoLayerRow, make_rows
from fedfisher_core.theory.settings import TwoLayerBenchmark
from flows.plan import check_two_layer
from flows.pool import Pool, task_runner
from flows.progress import Progress
from flows.provenance import command, git_commit
from tasks.theory import measure_seed, record_two_layer, report_two_layer

_DEFAULTS = TwoLayerBenchmark()


@flow(name="two-layer", flow_run_name="{settings.name}", persist_result=False)
def two_layer(settings: TwoLayerBenchmark = _DEFAULTS) -> str:
    """Run the two-layer experiment from data to report.

    Args:
        settings: the experiment.

    Returns:
        The report's folder.
    """
    context = check_two_layer(settings)
    rows = _rows(context, _measure(context))
    folder = report_two_layer(settings=settings, command=command("two-layer"), rows=rows)
    record_two_layer(settings=settings, rows=rows, tags={"flow_run": str(flow_run.id), "git_commit": git_commit()})
    _show(settings.name, rows, folder)
    return str(folder)


def _measure(context: TwoLayerContext) -> dict[int, Artifact]:
    """Measure all seeds side by side."""
    seeds = context.settings.two_layer.seeds
    measured: dict[int, Artifact] = {}
    with (
        Progress(name=context.settings.name, total=len(seeds)) as progress,
        task_runner(context) as runner,
    ):
        pool = Pool(context, runner, progress)
        for seed in seeds:

            def keep(artifact: Artifact, seed: int = seed) -> None:
                measured[seed] = artifact

            pool.submit(measure_seed, then=keep, seed=seed)
        pool.run()
    return measured


def _rows(context: TwoLayerContext, measured: dict[int, Artifact]) -> list[TwoLayerRow]:
    settings = context.settings
    return [
        row
        for seed in settings.two_layer.seeds
        for row in make_rows(settings.name, settings.two_layer, seed, read_seed(measured[seed]), measured[seed].key)
    ]


def _show(name: str, rows: list[TwoLayerRow], folder: Path) -> None:
    """Show the mean errors and the report in Prefect's UI."""
    key = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    table = [
        {"curve": curve.name, "value": str(point.value)}
        | {method: significant(point.bands[method].mean) for method in METHODS}
        for curve in (curve_of(rows, "width"), curve_of(rows, "local_steps"))
        for point in curve.points
    ]
    create_table_artifact(table, key=f"{key}-results", description=f"Mean training errors, {name}")
    create_link_artifact((folder / "index.html").absolute().as_uri(), link_text="report", key=f"{key}-report")
