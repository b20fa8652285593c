"""One flow for every experiment, all with one body: do what is left, report, record, share.

A flow is made when it is asked for by its experiment's name, so that an experiment of another package is deployed as
the project's own are: `flows/experiment.py:NAME`.
"""

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from prefect import Flow, flow
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.runtime import flow_run

from fedfisher_core.errors import IncompleteError
from fedfisher_core.experiments.contract import experiments
from fedfisher_core.failures import failed_jobs, failed_json, traces_text
from fedfisher_core.reporting.folder import FAILED, TRACES
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.rows import ARTIFACTS, artifacts_json, write_file
from fedfisher_core.reporting.tables import as_records
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.walk import require_all
from flows.pool import walk_in_tasks
from flows.provenance import command, git_commit, page_of
from flows.sharing import REPORT, export, share
from flows.unchanged import content_of, is_unchanged
from flows.work import Begun, Work, begin
from tasks.options import limited
from tasks.recording import record
from tasks.reporting import report


@cache
def flow_of(name: str) -> Flow[..., str]:
    """Make the flow of one experiment.

    Args:
        name: the experiment's.

    Returns:
        A flow over the experiment's settings, which Prefect checks before a run is created. It returns the folder of
        the report.

    Raises:
        InputError: nobody knows the experiment.
    """
    model = experiments.get(name).settings
    defaults = model()

    def body(settings: model = defaults) -> str:  # type: ignore[valid-type]
        return run(settings)

    return _named(body, name)


def stage_flow_of(name: str, stage: str) -> Flow[..., None]:
    """Make the flow of one stage of the reproducible pipeline.

    Args:
        name: the experiment's.
        stage: one of its plan's, or the report.

    Returns:
        A flow over the experiment's settings that makes what the stage is for, and links it where DVC finds it. It
        leaves it to DVC, which has started it and locks what it keeps, to commit that.
    """

    def body(settings: ExperimentSettings) -> None:
        work = begin(settings, None if stage == REPORT else stage)
        _finish(work)
        if stage == REPORT:
            _publish_complete(work)
            return
        _require_complete(work, reported=False)
        require_all(work.plan.jobs, work.walk.outcome)
        export(work.settings.name, stage, work.artifacts(stage))

    return _named(body, f"{name}-{stage}")


def run(settings: ExperimentSettings) -> str:
    """Do what is left of an experiment; nothing at all where nothing is.

    Args:
        settings: the experiment.

    Returns:
        The report's folder.

    Raises:
        IncompleteError: some jobs failed; the report shows the results of the others.
    """
    work = begin(settings)
    # What an earlier run had to leave goes before the stages are looked at.
    _finish(work)
    if not is_unchanged(work):
        _publish_complete(work)
        share(work)
    return str(work.folder)


def _finish(work: Begun) -> None:
    """Do what is left, and say what was pruned."""
    walk, name = work.walk, work.settings.name
    try:
        walk.shed(work.lease)
        if not walk.finished:
            walk_in_tasks(walk, work.store, work.lease, work.settings.run, name=name)
    finally:
        if said := str(walk.take_pruned()):
            print(f"{name}: {said}", file=sys.stderr, flush=True)


def _publish_complete(work: Work) -> None:
    if work.rows:
        _publish(work)
    _require_complete(work, reported=bool(work.rows))


def _require_complete(work: Work, *, reported: bool) -> None:
    """Write down where jobs failed."""
    failed = work.walk.outcome.failed
    if failed:
        causes = failed_jobs(failed)
        traces = write_file(work.folder / TRACES, traces_text(failed).encode())
        raise IncompleteError(
            f"{work.settings.name}: {plural(len(causes), 'job')} failed and {sum(len(one.left_out) for one in causes)} "
            f"that need them were left out; tracebacks: {traces}",
            by_user=all(failure.by_user for failure in failed.values()),
            reported=reported,
        )


def _publish(work: Work) -> None:
    """Write the report, record the rows in MLflow, and show both in Prefect's UI."""
    settings, experiment = work.settings, work.experiment
    failed = failed_jobs(work.walk.outcome.failed)
    page = page_of(settings, command=command(_title(settings.experiment)), failed=failed)
    files = experiment.files(work.plan, work.walk.outcome, work.rows, page)
    folder = limited(report, settings.run)(
        folder=work.folder,
        rows=work.rows,
        files={**files, ARTIFACTS: artifacts_json(work.ends), **({FAILED: failed_json(failed)} if failed else {})},
        # What is left is never taken for the whole.
        content="" if failed else content_of(experiment, settings, work.rows),
    )
    limited(record, settings.run)(
        settings=settings.tracking,
        experiment=settings.name,
        runs=work.runs,
        tags={"flow_run": str(flow_run.id), "git_commit": git_commit()},
    )
    key = re.sub(r"[^a-z0-9]+", "-", settings.name.lower()).strip("-")
    table = as_records(experiment.tables(work.rows))
    create_table_artifact(table, key=f"{key}-results", description=f"Results of {settings.name}")
    create_link_artifact((folder / "index.html").absolute().as_uri(), link_text="report", key=f"{key}-report")


def _named(body: Callable[..., Any], name: str) -> Flow[..., Any]:
    title = _title(name)
    body.__name__ = body.__qualname__ = name
    return flow(name=title, flow_run_name="{settings.name}", persist_result=False)(body)


def _title(name: str) -> str:
    return name.replace("_", "-")


def __getattr__(name: str) -> Flow[..., str]:
    if name.startswith("_") or name not in list(experiments):
        raise AttributeError(name)
    return flow_of(name)
