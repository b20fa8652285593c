"""What the flows of all experiments do: take settings, compute what is missing, report, record, end."""

import importlib
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from prefect import Flow, flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.runtime import flow_run
from prefect.states import Crashed

from fedfisher_core.engine.errors import IncompleteError, InputError, UnwritableError, shown
from fedfisher_core.engine.failures import FailedJob, failed_jobs, failed_json, traces_text
from fedfisher_core.engine.installed import is_core
from fedfisher_core.engine.store import read_libraries
from fedfisher_core.experiments.contract import PARAMS, experiments, load
from fedfisher_core.reporting.formats import as_markdown, as_records, plural
from fedfisher_core.reporting.page import DATA, write_page_data
from fedfisher_core.reporting.rows import ARTIFACTS, FAILED, PAGE, RESULTS, TRACES, artifacts_json, write_file
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.settings.reading import CONFIGS, nearest
from flows.provenance import command, git_commit, made_with, page_of
from flows.submitting import submit_missing
from flows.work import Work, is_unchanged, prepare
from tasks.common import limited
from tasks.record import record
from tasks.stages import report

S = TypeVar("S", bound=ExperimentSettings)


def resolve_settings(settings: S, config: str | None, *, default: S) -> S:
    """Return the settings, or those of the file that is named; without either, those of params.yaml.

    Args:
        config: a file's name in `configs`, without its ending.
        default: the very object that `settings` are where none are given; other settings may be equal to it.

    Raises:
        InputError: there is no such file, it is of another experiment, or both settings and a file are given.
    """
    if config is None:
        return settings if settings is not default else _of_params(default)
    files = {path.stem: path for path in sorted(CONFIGS.glob("*.yaml")) if path.stem != "dvc"}
    if config not in files:
        raise InputError(f"config={shown(config)}: no file in {CONFIGS}/ has this name; {nearest(config, list(files))}")
    if settings != default:
        raise InputError(f"config={shown(config)} with settings; allowed: one of them")
    found = load(files[config])
    if not isinstance(found, type(settings)):
        kind, own = found.experiment, settings.experiment
        raise InputError(f"config={shown(config)} is of the experiment {kind!r}; allowed: files of {own!r}")
    return found


def _of_params(default: S) -> S:
    """Return the settings of params.yaml; the default where there is none, or one of another experiment."""
    found = load(PARAMS) if PARAMS.is_file() else default
    return found if isinstance(found, type(default)) else default


def run_name() -> str:
    """Name a run after its settings, which may be those of params.yaml, or after the file that it takes them from."""
    given: dict[str, Any] = flow_run.parameters
    settings = given["settings"]
    default = type(settings)()
    return given.get("config") or (_of_params(default) if settings == default else settings).name


def end_tasks(flow: Flow[..., object], flow_run: FlowRun, state: State[object]) -> None:
    """Record that tasks under way have ended with their flow.

    A task reports its end in the background, and a stopped command does not wait for that. Without this, a server that
    goes on would show the tasks as running for ever.
    """
    wanted = TaskRunFilter(state={"type": {"any_": [StateType.PENDING, StateType.RUNNING]}})
    own = FlowRunFilter(id={"any_": [flow_run.id]})
    with get_client(sync_client=True) as client:
        for run in client.read_task_runs(flow_run_filter=own, task_run_filter=wanted):
            client.set_task_run_state(run.id, Crashed(message="Its flow was stopped."), force=True)


def experiment_flow(body: Callable[..., str]) -> Flow[..., str]:
    """Make a Prefect flow of a function of an experiment's settings, which Prefect checks before it creates a run."""
    return flow(
        name=_title(body.__name__),
        flow_run_name=run_name,
        persist_result=False,
        on_crashed=[end_tasks],
        on_cancellation=[end_tasks],
    )(body)


@cache
def flow_of(name: str) -> Flow[..., str]:
    """Return the flow of an experiment, and make that of a plug-in's experiment.

    Raises:
        InputError: no experiment has this name.
    """
    model = experiments.get(name).settings
    if is_core(model):
        return getattr(importlib.import_module(f"flows.{name}"), name)
    defaults = model()

    def body(settings: model = defaults, config: str | None = None) -> str:  # type: ignore[valid-type]
        return run_experiment(resolve_settings(settings, config, default=defaults))

    body.__name__ = body.__qualname__ = name
    return experiment_flow(body)


def run_experiment(settings: ExperimentSettings) -> str:
    """Do what is left of an experiment, and return the folder of its report.

    Raises:
        IncompleteError: some jobs failed; the report shows the results of the others.
    """
    work = prepare(settings)
    # What is found may be deleted while the run goes on.
    found = [read_libraries(artifact) for artifact in work.agenda.found.values()]
    compute_missing(work)
    causes = failed_jobs(work.outcome.failed)
    if not is_unchanged(work):
        try:
            if work.rows:
                anew = any(job.name in work.outcome.artifacts for job in work.agenda.missing)
                publish(work, made_with(found, anew=anew), causes)
        finally:
            # After the report, which replaces the folder; and without it, as failed jobs leave nothing else.
            traces = _write_traces(work, causes)
        if causes:
            raise IncompleteError(
                f"{work.settings.name}: {plural(len(causes), 'job')} failed and "
                f"{sum(len(one.left_out) for one in causes)} that need them were left out; tracebacks: {traces}",
                by_user=all(failure.by_user for failure in work.outcome.failed.values()),
                reported=bool(work.rows),
                failed=causes,
            )
    return str(work.folder)


def compute_missing(work: Work) -> None:
    """Submit a task for each job whose result the store lacks, and delete results that `rounds.keep` does not keep."""
    transients, name = work.transients, work.settings.name
    try:
        transients.delete()
        if work.agenda.missing:
            work.store.note_versions(work.versions)
            work.outcome = submit_missing(work.agenda, work.store, transients, work.settings.run, name=name)
    finally:
        if said := str(transients):
            print(f"{name}: {said}", file=sys.stderr, flush=True)


def _write_traces(work: Work, causes: Sequence[FailedJob]) -> str:
    """Write the tracebacks of failed jobs, if any, and say where they are."""
    if not causes:
        return ""
    try:
        traces = str(write_file(work.folder / TRACES, traces_text(work.outcome.failed).encode()))
        if not work.rows and (work.folder / RESULTS).is_file():
            # What an earlier run has found must not be taken for the result of this one.
            write_file(work.folder / FAILED, failed_json(causes))
    except UnwritableError as error:
        # The failures count, and not that they can't be written down.
        return f"none, as {error}; the first failure: {causes[0].job}: {causes[0].reason}"
    return traces


def publish(work: Work, libraries: Mapping[str, str], failed: Sequence[FailedJob]) -> None:
    """Write the report, record the rows in MLflow, and show both in Prefect's UI.

    Args:
        libraries: the versions of those that computed the results.
        failed: the jobs that failed, if any.
    """
    settings, experiment = work.settings, work.experiment
    shown = experiment.shown(work.plan, work.outcome)
    page = page_of(
        settings,
        command=command(_title(settings.experiment)),
        libraries=libraries,
        failed=failed,
        shown=shown,
    )
    files = {**experiment.files(work.rows, page), DATA: write_page_data(page)}
    folder = limited(report, settings.run)(
        folder=work.folder,
        rows=work.rows,
        files={
            **files,
            ARTIFACTS: artifacts_json(work.result_keys),
            **({FAILED: failed_json(failed)} if failed else {}),
        },
        # An incomplete report has no digest, so it is never taken for a complete one.
        content="" if failed else work.content,
    )
    limited(record, settings.run)(
        settings=settings.tracking,
        experiment=settings.name,
        runs=work.runs,
        tags={"flow_run": str(flow_run.id), "git_commit": git_commit()},
    )
    key = re.sub(r"[^a-z0-9]+", "-", settings.name.lower()).strip("-")
    tables = experiment.tables(work.rows)
    create_table_artifact(as_records(tables), key=f"{key}-results", description=f"Results of {settings.name}")
    # Browsers refuse links from Prefect's page to files.
    said = [f"# {settings.name}", f"The report is `{(folder / PAGE).absolute()}`.", as_markdown(tables)]
    report_of = "\n\n".join([*said, *_pictures(files)]) + "\n"
    create_markdown_artifact(report_of, key=f"{key}-report", description=f"Report of {settings.name}")


def _pictures(files: Mapping[str, bytes]) -> list[str]:
    """Write each picture of a report into Markdown itself, since Prefect's page reads no files."""
    pictures = {name: data for name, data in files.items() if name.endswith(".png")}
    return [f"![{name}](data:image/png;base64,{b64encode(data).decode()})" for name, data in pictures.items()]


def _title(name: str) -> str:
    return name.replace("_", "-")


def __getattr__(name: str) -> Flow[..., str]:
    # A plug-in's experiment is deployed as `flows/experiment.py:NAME`.
    if name.startswith("_") or name not in list(experiments):
        raise AttributeError(name)
    return flow_of(name)
