"""Flow runs of dead commands in the database of a real Prefect server."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, get_current_settings, temporary_settings
from prefect.states import Running

from fedfisher_core.engine.locks import take
from flows.prefect_history import tidy, with_run_record

pytestmark = pytest.mark.end_to_end


@flow
def beats() -> int | None:
    """Say how often a run of this flow tells that it is alive."""
    return get_current_settings().flows.heartbeat_frequency


@flow
def nothing() -> None:
    """Do nothing."""


@pytest.fixture
def client(tmp_path: Path, prefect_api: str) -> Iterator[SyncPrefectClient]:
    settings = {PREFECT_API_URL: prefect_api, PREFECT_HOME: tmp_path}
    with temporary_settings(settings), get_client(sync_client=True) as found:
        yield found


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "fedfisher"
    folder.mkdir()
    return folder


def running(client: SyncPrefectClient) -> UUID:
    return client.create_flow_run(nothing, state=Running()).id


def state(client: SyncPrefectClient, run: UUID) -> StateType | None:
    return client.read_flow_run(run).state_type


def test_only_noted_runs_whose_process_is_gone_are_marked(client: SyncPrefectClient, notes: Path) -> None:
    dead, alive, foreign = (running(client) for _ in range(3))
    (notes / str(dead)).touch()
    (notes / "README").touch()
    held = take(notes / str(alive))
    assert held is not None
    with closing(held):
        tidy()
    assert state(client, dead) is StateType.CRASHED
    assert state(client, alive) is state(client, foreign) is StateType.RUNNING


def test_the_oldest_noted_runs_are_removed_within_the_time(client: SyncPrefectClient, notes: Path) -> None:
    runs = [running(client) for _ in range(4)]
    for age, run in enumerate(reversed(runs[:3])):
        (notes / str(run)).touch()
        os.utime(notes / str(run), (1_000 - age, 1_000 - age))
    tidy(kept=1, seconds=0)
    assert all(state(client, run) is StateType.CRASHED for run in runs[:3])
    tidy(kept=1)
    for run in runs[:2]:
        with pytest.raises(ObjectNotFound):
            client.read_flow_run(run)
    assert [path.name for path in notes.iterdir()] == [str(runs[2])]
    assert state(client, runs[3]) is StateType.RUNNING


def test_a_run_is_noted_as_long_as_its_process_lives(client: SyncPrefectClient, tmp_path: Path) -> None:
    with_run_record(nothing)()
    (note,) = (tmp_path / "fedfisher").iterdir()
    assert take(note) is None
    assert client.read_flow_run(UUID(note.name)).name


def test_a_run_has_no_heartbeats_which_its_end_would_wait_for(client: SyncPrefectClient) -> None:
    assert beats() is not None
    assert with_run_record(beats)() is None
