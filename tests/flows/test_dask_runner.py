"""Tasks on workers of a real Dask cluster: where they run, and what becomes of them when workers die."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import dask
import psutil
import pytest
from distributed import Client
from prefect_dask.task_runners import PrefectDaskFuture

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import NoInputs, Numerics
from fedfisher_core.engine.performing import Transients
from fedfisher_core.engine.plan import Outcome, agenda_of
from fedfisher_core.engine.store import Content, Store
from fedfisher_core.settings import RunSettings
from flows import submitting
from flows.dask_runner import DaskRunner
from flows.submitting import submit_missing
from tests.flows.sleeping import Sleep
from tests.flows.test_submitting import Quiet
from tests.servers import added_worker, dask_scheduler, dask_worker, free_port, wait_for_workers
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Where(Sleep):
    """A job that says where it was computed."""

    def compute(self, inputs: NoInputs) -> Content:
        from distributed import get_worker

        return Content(documents={"where.json": get_worker().address})


@dataclass(frozen=True)
class Reading(Sleep):
    """A job that reads more than the store."""

    reads_sources: ClassVar[bool] = True

    def compute(self, inputs: NoInputs) -> Content:
        return Content(documents={"process.json": os.getpid()})


@dataclass(frozen=True)
class Deadly(Sleep):
    """A job that ends the process that computes it."""

    def compute(self, inputs: NoInputs) -> Content:
        os._exit(1)


class Bare:
    """Has Dask run the function of a task, without Prefect, which needs a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def submit(self, task: Any, parameters: dict[str, Any], dependencies: Any) -> PrefectDaskFuture[Any]:
        return PrefectDaskFuture(uuid.uuid4(), self.client.submit(task.fn, **parameters, pure=False))


class Here:
    """Does the work of a task at once."""

    def submit(self, task: Any, parameters: dict[str, Any], dependencies: Any) -> Any:
        from tests.flows.test_submitting import Promise

        promise = Promise()
        promise.future.set_result(task.fn(**parameters))
        return promise


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A scheduler without workers, on which a task that has ended one worker is not given to others."""
    patience = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with dask_scheduler({**os.environ, **patience, "PYTHONPATH": str(ROOT)}) as address:
        yield address


@pytest.fixture
def run(scheduler: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Outcome]]:
    """Computes jobs on the scheduler's workers."""
    monkeypatch.chdir(tmp_path)
    settings = RunSettings(runner="dask", dask={"scheduler": scheduler}, store=tmp_path / "artifacts")
    monkeypatch.setattr(submitting, "Progress", Quiet)
    with Client(scheduler, set_as_default=False) as client:
        found = DaskRunner(settings, 1)
        monkeypatch.setattr(found, "_dask", Bare(client))
        monkeypatch.setattr(found, "_runner", Bare(client))
        monkeypatch.setattr(found, "_local", Here())
        monkeypatch.setattr(DaskRunner, "__enter__", lambda self: self)
        monkeypatch.setattr(DaskRunner, "__exit__", lambda self, *reason: None)
        monkeypatch.setattr(submitting, "started", lambda run: found)

        def computed(*jobs: Sleep) -> Outcome:
            store = Store(tmp_path / "artifacts").absolute()
            with store.used_by_run("test") as hold:
                agenda = agenda_of(jobs, store)
                return submit_missing(agenda, store, Transients(agenda, store, hold), settings, name="test")

        yield computed


def said(outcome: Outcome, name: str, file: str) -> Any:
    from fedfisher_core.engine.store import read_document

    return read_document(outcome.artifacts[name], file)


def test_jobs_go_to_workers_those_of_a_gpu_to_one_that_has_it_and_what_they_can_not_read_stays_here(
    run: Callable[..., Outcome], scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("plain", "gpu"):
        (tmp_path / name).mkdir()
    jobs = (Reading(name="read"), Where(name="any"), Where(name="cuda", numerics=Numerics(device="cuda")))
    with (
        added_worker(scheduler, environment, tmp_path / "plain") as plain,
        added_worker(scheduler, environment, tmp_path / "gpu", "--resources", "GPU=1") as gpu,
    ):
        client = Client(scheduler, set_as_default=False)
        # No machine of the tests need have one.
        client.run(_pretend)
        outcome = run(*jobs)
        client.close()
    assert said(outcome, "read", "process.json") == os.getpid()
    assert said(outcome, "any", "where.json") in (plain, gpu)
    assert said(outcome, "cuda", "where.json") == gpu


def _pretend() -> None:
    from contextlib import nullcontext

    from tasks import computing

    computing.tensor_resources = lambda numerics, share_gpu, seconds: nullcontext()  # type: ignore[assignment, misc]


@pytest.mark.drawn(0)
def test_a_job_that_ends_its_worker_is_named_and_the_run_comes_to_its_end(
    run: Callable[..., Outcome], scheduler: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with ExitStack() as stack:
        stack.enter_context(dask_worker(scheduler, environment, tmp_path))
        wait_for_workers(scheduler, 1)
        outcome = run(Deadly(name="deadly"))
    assert outcome.failed.keys() == {"deadly"}
    assert "died" in outcome.failed["deadly"].reason


QUIET = {"PREFECT_LOGGING_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning"}
"""As the command has it."""

OWN_CLUSTER = """
import sys
from fedfisher_core.settings import RunSettings
from flows.stopping import leave, stop_on_sigterm
from flows.submitting import started
stop_on_sigterm()
try:
    with started(RunSettings(runner="dask", workers=2)) as runner:
        print(runner.count, flush=True)
except KeyboardInterrupt as stop:
    leave(stop)
"""


def own_cluster(folder: Path) -> "subprocess.Popen[str]":
    """A command that starts a cluster of its own, in a process group of its own as on a terminal, and ends it."""
    return subprocess.Popen(
        [sys.executable, "-c", OWN_CLUSTER],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder), **QUIET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.drawn(0)
def test_a_task_that_takes_too_long_fails_alone(
    run: Callable[..., Outcome], scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_late() -> None:
        raise TimeoutError("after 1 s")

    # Prefect ends a task so, and here no Prefect counts the seconds.
    monkeypatch.setattr(DaskRunner, "prepared", lambda self, work, job: end_late if job.name == "late" else work)
    with added_worker(scheduler, {**os.environ, "PYTHONPATH": str(ROOT)}, tmp_path):
        outcome = run(Sleep(name="late"), Sleep(name="other"))
    assert outcome.failed.keys() == {"late"}
    assert outcome.artifacts.keys() == {"other"}


def test_a_scheduler_that_is_gone_when_the_run_begins_is_named(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    run = RunSettings(runner="dask", dask={"scheduler": address}, store=tmp_path / "artifacts")
    message = (
        f"the Dask scheduler run.dask.scheduler='{address}' is gone; what was done is kept, and another run goes on"
    )
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(InputError, match=re.escape(message)),
    ):
        DaskRunner(run, 1).__enter__()


def test_a_cluster_of_this_machine_leaves_no_folder_behind(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as command:
        out, err = command.communicate(timeout=HANG_SECONDS)
    assert (command.returncode, out, err) == (0, "2\n", "")
    assert list(tmp_path.iterdir()) == []


def command_line(process: psutil.Process) -> str:
    """The words of a process's command, none of one that has ended since it was found."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.drawn(0)
def test_ctrl_c_while_a_cluster_starts_is_told_in_one_line(tmp_path: Path) -> None:
    with own_cluster(tmp_path) as command:
        started: list[psutil.Process] = []
        while not started:
            assert command.poll() is None
            found = psutil.Process(command.pid).children(recursive=True)
            started = [one for one in found if "spawn_main" in command_line(one)]
        # They import what they need now.
        time.sleep(0.5)
        os.killpg(command.pid, signal.SIGINT)
        out, err = command.communicate(timeout=HANG_SECONDS)
    assert (command.returncode, out) == (130, ""), err
    assert err.splitlines() == ["fedfisher: stopped; what was finished is kept and will not be computed again"]
    assert not (tmp_path / "dask-scratch-space").exists()
