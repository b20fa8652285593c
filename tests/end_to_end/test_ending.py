"""What a command, and a Prefect server that stays, say after the command was stopped or has failed on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.experiment import end_tasks, flow_of
from tests.end_to_end.conftest import SMALL, Workplace
from tests.waiting import HANG_SECONDS, wait_until

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[2]
COMMAND = """
import sys, time
from prefect import flow, task
from flows.experiment import end_tasks
from flows.stopping import leave, stop_on_sigterm

@task
def waiting():
    for _ in range(6000):
        time.sleep(0.05)

@flow(name=sys.argv[1], on_crashed=[end_tasks], on_cancellation=[end_tasks])
def stopped():
    waiting()

stop_on_sigterm()
try:
    stopped()
except KeyboardInterrupt as stop:
    leave(stop)
"""


def states(client: SyncPrefectClient, name: str) -> list[str | None]:
    """Of the tasks and the flows of a name."""
    wanted = FlowFilter(name=FlowFilterName(any_=[name]))
    runs = [*client.read_task_runs(flow_filter=wanted), *client.read_flow_runs(flow_filter=wanted)]
    return [None if run.state_type is None else run.state_type.value for run in runs]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_said_to_run_after_a_stop(prefect_api: str, sent: signal.Signals, tmp_path: Path) -> None:
    name = f"stopped by {sent.name}"
    environment = os.environ | {"PREFECT_API_URL": prefect_api, "PREFECT_HOME": str(tmp_path)}
    with (
        temporary_settings({PREFECT_API_URL: prefect_api}),
        get_client(sync_client=True) as client,
        subprocess.Popen([sys.executable, "-c", COMMAND, name], cwd=ROOT, env=environment) as command,
    ):
        while states(client, name) != ["RUNNING", "RUNNING"]:
            assert command.poll() is None
            time.sleep(0.2)
        command.send_signal(sent)
        assert command.wait(timeout=HANG_SECONDS) == (130 if sent is signal.SIGINT else 143)
        assert states(client, name) == ["CRASHED", "CRASHED"]


def test_flows_of_experiments_end_their_tasks() -> None:
    flow = flow_of("benchmark")
    assert flow.on_crashed_hooks == flow.on_cancellation_hooks == [end_tasks]


@pytest.mark.drawn(0)
@pytest.mark.parametrize("code", [130, 1])
def test_a_program_reads_what_finished_before_the_end(workplace: Workplace, code: int) -> None:
    few = SMALL | {"methods": {"fedavg": {}}, "train": {"epochs": 1}, "run": {"retries": 0}}
    workplace.write("first.yaml", few | {"name": "first"})
    workplace.write("second.yaml", few | {"name": "second", "seeds": [1], "train": {"epochs": 10}})
    process = workplace.start("fedfisher", "run", "first.yaml", "second.yaml", "--json")
    partitions = workplace.folder / "artifacts/partitions"

    def second_has_begun() -> bool:
        assert process.poll() is None, process.communicate()
        return len(list(partitions.glob("*/manifest.json"))) == 2

    wait_until(second_has_begun, "the second experiment begins")
    if code == 130:
        process.send_signal(signal.SIGINT)
    else:
        # Its report needs a folder of this name; results are kept.
        (workplace.folder / "results/second").write_text("")
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, "Traceback" in err) == (code, False), err
    made = {"name": "first", "folder": "results/first", "rows": 1, "failures": []}
    assert json.loads(out) == {"reports": [made], "exit": code}
