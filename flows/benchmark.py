"""The benchmark: train every client once, aggregate with every method, report and record."""

import re
from pathlib import Path

from prefect import flow
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.runtime import flow_run

from fedfisher_core.reporting.published import PublishedResult, read_published
from fedfisher_core.reporting.rows import Row
from fedfisher_core.reporting.summary import summarise
from fedfisher_core.settings import Settings
from flows.plan import make_plan, parse_published
from flows.pool import allow_gpus
from flows.provenance import command, git_commit
from flows.sharing import export, is_default, own_name, share
from flows.work import Work, working
from tasks.reporting import report
from tasks.tracking import record

PUBLISHED = Path("reports/published_results.csv")
_DEFAULTS = Settings()


@flow(name="benchmark", flow_run_name="{settings.name}", persist_result=False)
def benchmark(settings: Settings = _DEFAULTS) -> str:
    """Run a benchmark from data to report.

    Args:
        settings: the benchmark. Settings that bear the name of params.yaml but differ from it get a name of their own.

    Returns:
        The report's folder.
    """
    settings = own_name(settings)
    work = _work(settings)
    folder = _publish(work)
    if is_default(settings):
        share(work)
    return str(folder)


@flow(name="clients", flow_run_name="{settings.name} clients", persist_result=False)
def clients(settings: Settings) -> None:
    """Train the clients and compute what they upload: the first stage of the reproducible pipeline.

    Args:
        settings: the benchmark.
    """
    plan = make_plan(settings)
    allow_gpus()
    with working(plan) as work:
        work.train()
    export(settings.name, "clients", work.client_artifacts())


@flow(name="aggregates", flow_run_name="{settings.name} aggregates", persist_result=False)
def aggregates(settings: Settings) -> None:
    """Aggregate with every method: the second stage of the reproducible pipeline.

    Args:
        settings: the benchmark.
    """
    export(settings.name, "aggregates", _work(settings).aggregate_artifacts())


@flow(name="report", flow_run_name="{settings.name} report", persist_result=False)
def report_stage(settings: Settings) -> None:
    """Report and record what the stages before have made: the last stage of the reproducible pipeline.

    Args:
        settings: the benchmark.
    """
    _publish(_work(settings))


def _work(settings: Settings) -> Work:
    plan = make_plan(settings)
    allow_gpus()
    with working(plan) as work:
        work.train_and_aggregate()
    return work


def _publish(work: Work) -> Path:
    """Write the report, record the rows in MLflow, and show both in Prefect's UI."""
    settings = work.plan.context.settings
    rows = work.rows()
    folder = report(
        settings=settings,
        command=command("benchmark"),
        rows=rows,
        partitions=work.partitions,
        published=_published(settings),
    )
    record(
        settings=settings.tracking,
        experiment=settings.name,
        rows=rows,
        partitions=work.partitions,
        aggregates=work.aggregates,
        tags={"flow_run": str(flow_run.id), "git_commit": git_commit()},
    )
    key = re.sub(r"[^a-z0-9]+", "-", settings.name.lower()).strip("-")
    create_table_artifact(_table(rows), key=f"{key}-results", description=f"Accuracy in per cent, {settings.name}")
    create_link_artifact((folder / "index.html").absolute().as_uri(), link_text="report", key=f"{key}-report")
    return folder


def _table(rows: list[Row]) -> list[dict[str, str]]:
    return [
        {
            "setting": summary.setting.label,
            "method": method.method,
            "accuracy": f"{100 * method.accuracy.mean:.2f}",
            "deviation": "" if method.accuracy.deviation is None else f"{100 * method.accuracy.deviation:.2f}",
            "seeds": str(method.accuracy.n),
        }
        for summary in summarise(rows)
        for method in summary.methods
    ]


def _published(settings: Settings) -> list[PublishedResult] | None:
    if settings.report.published is None:
        return None
    source, table = parse_published(settings.report.published)
    return [one for one in read_published(PUBLISHED) if (one.source, one.table) == (source, table)]
