"""Records of runs in the database of temporary Prefect servers: dead runs are marked, and the oldest are removed."""

import logging
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_HOME, temporary_settings
from prefect.states import Crashed

from fedfisher_core.engine.locks import take

_KEPT_RUNS = 50
_SECONDS = 5.0
_POLL_SECONDS = 0.01
log = logging.getLogger("fedfisher")
_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

P = ParamSpec("P")
R = TypeVar("R")

_run_files: dict[UUID, ExitStack] = {}


def with_run_record(flow: Flow[P, R]) -> Callable[P, R]:
    """Tidy the records of earlier runs, and return a function that runs a flow and leaves a file for later tidying."""
    tidy()
    noted = flow.with_options(on_running=[_note])

    def run(*given: P.args, **named: P.kwargs) -> R:
        # A run's file shows whether it lives. With heartbeats, each run would wait half a second for their end.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            return noted(*given, **named)

    return run


def tidy(*, kept: int = _KEPT_RUNS, seconds: float = _SECONDS) -> None:
    """Mark dead flow runs and remove the oldest, among those that this project made on temporary servers.

    Each has a file in PREFECT_HOME, which its process keeps locked as long as it lives.

    Args:
        seconds: after this time, the next run removes the rest.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    noted = sorted(folder.iterdir(), key=_time_of)
    ended = [path for path in noted if _NAME.fullmatch(path.name) and _is_free(path)]
    end = time.monotonic() + seconds
    try:
        with get_client(sync_client=True) as client:
            _mark_dead(client, [UUID(path.name) for path in ended])
            for path in ended[: max(len(ended) - kept, 0)]:
                if time.monotonic() < end:
                    _remove(client, UUID(path.name))
                    # Another command that starts now may have removed it already.
                    path.unlink(missing_ok=True)
    except httpx.HTTPError as error:
        log.warning("records of earlier runs in Prefect's database are left as they are: %s", error)


def _note(flow: object, flow_run: FlowRun, state: object) -> None:
    """Lock a file that shows that this process runs a flow, as long as it lives."""
    end = time.monotonic() + _SECONDS
    # Prefect calls this again where it tries a flow again.
    while flow_run.id not in _run_files and time.monotonic() < end:
        if (file := take(_folder() / str(flow_run.id))) is None:
            # Another command that looks which runs have ended holds it for a moment.
            time.sleep(_POLL_SECONDS)
        else:
            _run_files[flow_run.id] = file


def _mark_dead(client: SyncPrefectClient, ended: list[UUID]) -> None:
    unfinished = {"type": {"any_": [StateType.PENDING, StateType.RUNNING]}}
    wanted = FlowRunFilter(id={"any_": ended}, state=unfinished)
    for run in client.read_flow_runs(flow_run_filter=wanted) if ended else []:
        client.set_flow_run_state(run.id, Crashed(message="The process that ran it is gone."), force=True)


def _remove(client: SyncPrefectClient, run: UUID) -> None:
    made = ArtifactFilter(flow_run_id={"any_": [run]})
    try:
        for artifact in client.read_artifacts(artifact_filter=made):
            client.delete_artifact(artifact.id)
        client.delete_flow_run(run)
    except ObjectNotFound:
        log.debug("flow run %s was removed before", run)


def _time_of(note: Path) -> int:
    """Return the time of a run's file, in nanoseconds; 0 if another command has removed it."""
    try:
        return note.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_free(path: Path) -> bool:
    """Say whether a run's file exists and no process holds it."""
    file = take(path) if path.exists() else None
    if file is None:
        return False
    file.close()
    return True


def _folder() -> Path:
    return PREFECT_HOME.value() / "fedfisher"
