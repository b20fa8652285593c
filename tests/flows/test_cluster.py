"""Which clusters are refused before any work: those whose workers are not there, differ, or see something else."""

import os
import re
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

from fedfisher_core.engine.errors import InputError, JobError, UnwritableError
from fedfisher_core.engine.failures import Failure, JobsFailedError
from fedfisher_core.engine.store import Store, bucket
from fedfisher_core.models.memory import Load, machine_bytes
from fedfisher_core.settings import RunSettings
from flows import cluster
from flows.cluster import Guarded, require_cluster, versions, worker_report
from tests.servers import (
    added_worker,
    answering,
    dask_scheduler,
    dask_worker,
    wait_for_workers,
)
from tests.waiting import HANG_SECONDS

NO_SERVER = "http://127.0.0.1:9/api"
ROOT = Path(__file__).parents[2]
WITHOUT_PROJECT = (
    sys.executable,
    "-c",
    "import sys; sys.modules['flows'] = None; from dask.__main__ import main; main()",
)


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def prefect_api() -> Iterator[str]:
    """What answers as a Prefect server does when it is asked for its health."""
    with answering(Healthy) as address:
        yield f"{address}/api"


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    """A scheduler without workers."""
    with dask_scheduler(os.environ) as scheduler:
        yield scheduler


@pytest.fixture(scope="module")
def like_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler with a worker that is as this process is, in another folder."""
    with dask_scheduler(os.environ) as scheduler, dask_worker(scheduler, os.environ, tmp_path_factory.mktemp("worker")):
        wait_for_workers(scheduler, 1)
        yield scheduler


def settings(store: Path, scheduler: str, device: str = "cpu") -> RunSettings:
    return RunSettings(runner="dask", dask={"scheduler": scheduler}, store=store, device=device)


def named(scheduler: str) -> str:
    """How messages name the setting, the only worker and its machine; a pattern."""
    return rf"run\.dask\.scheduler='{scheduler}': Dask worker tcp://127\.0\.0\.1:\d+ on {socket.gethostname()}"


def test_other_runners_ask_for_nothing(tmp_path: Path) -> None:
    require_cluster(RunSettings(runner="threads", dask={"scheduler": "tcp://127.0.0.1:9"}, store=tmp_path), None)


def test_workers_that_are_as_they_should_be_pass(tmp_path: Path, like_here: str, prefect_api: str) -> None:
    require_cluster(settings(tmp_path, like_here), prefect_api)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


@pytest.mark.parametrize("name", ["Python", "torch", "prefect", "distributed"])
def test_a_worker_with_another_version_is_named(
    tmp_path: Path, like_here: str, prefect_api: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = versions()
    monkeypatch.setattr(cluster, "versions", lambda: {**there, name: "0.1"})
    with pytest.raises(InputError, match=rf"^{named(like_here)} has {name} {there[name]}; allowed, as here: 0\.1$"):
        require_cluster(settings(tmp_path, like_here), prefect_api)


def test_a_worker_with_too_little_memory_is_named(tmp_path: Path, like_here: str, prefect_api: str) -> None:
    there = machine_bytes()
    assert there is not None
    fits, exceeds = (Load(said="method 'x' holds much", bytes=size, remedy="less") for size in (there, there + 1))
    require_cluster(settings(tmp_path, like_here), prefect_api, fits)
    with pytest.raises(
        InputError, match=rf"^{named(like_here)} has {there / 2**30:.1f} GiB; method 'x' holds much; allowed: less$"
    ):
        require_cluster(settings(tmp_path, like_here), prefect_api, exceeds)


def test_a_temporary_prefect_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs a Prefect server that its workers reach; allowed: .*PREFECT_API_URL"):
        require_cluster(settings(tmp_path, "tcp://127.0.0.1:9"), None)


@pytest.mark.drawn(0)
def test_a_scheduler_that_dies_while_its_workers_are_asked_is_named(tmp_path: Path) -> None:
    with dask_scheduler(os.environ) as scheduler, dask_worker(scheduler, os.environ, tmp_path):
        wait_for_workers(scheduler, 1)
        with Client(scheduler, set_as_default=False) as client:
            process = client.run_on_scheduler(os.getpid)

        class Deadly(Healthy):
            def do_GET(self) -> None:
                os.kill(process, signal.SIGKILL)
                super().do_GET()

        with (
            answering(Deadly) as address,
            pytest.raises(InputError, match=f"{scheduler}' was lost while its workers were checked: "),
        ):
            require_cluster(settings(tmp_path / "store", scheduler), f"{address}/api")


def test_a_scheduler_without_workers_is_named(tmp_path: Path, empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_WORKERS_SECONDS", 0)
    with pytest.raises(InputError, match=r"run\.dask\.scheduler='tcp://.*' has no workers"):
        require_cluster(settings(tmp_path, empty), NO_SERVER)


@pytest.mark.drawn(0)
def test_the_wait_begins_when_none_is_found(tmp_path: Path, empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_WORKERS_SECONDS", 1)
    asked = cluster._ask_workers

    def slowly(*given: Any, **options: Any) -> dict[str, Any]:
        # As where Dask tries for long to reach a worker that is gone.
        time.sleep(1.5)
        return asked(*given, **options)

    monkeypatch.setattr(cluster, "_ask_workers", slowly)
    begun = time.monotonic()
    with pytest.raises(InputError, match="has no workers; start some"):
        require_cluster(settings(tmp_path, empty), NO_SERVER)
    assert time.monotonic() - begun > 2.5


@pytest.mark.drawn(0)
def test_workers_that_are_being_started_are_waited_for_and_all_looked_at(
    tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # On a busy machine one may come seconds after the other.
    monkeypatch.setattr(cluster, "_TOGETHER_SECONDS", 8)
    seen: list[int] = []
    looked = cluster._reports
    monkeypatch.setattr(cluster, "_reports", lambda *given: seen.append(len(found := looked(*given))) or found)
    folders = [tmp_path / "one", tmp_path / "two"]
    with dask_scheduler(os.environ) as scheduler, ExitStack() as workers:
        for folder in folders:
            folder.mkdir()
            workers.enter_context(dask_worker(scheduler, os.environ, folder))
        # Their processes are there, and have yet to import Dask.
        require_cluster(settings(tmp_path / "store", scheduler), prefect_api)
    assert seen == [0, 2]
    assert caplog.messages == [
        f"run.dask.scheduler={scheduler!r} has no workers; the run waits 30 s for some: "
        f"dask worker {scheduler} --nthreads 1"
    ]


def test_a_worker_that_does_not_reach_prefect_is_named(tmp_path: Path, like_here: str) -> None:
    with pytest.raises(
        InputError,
        match=rf"^{named(like_here)} does not reach the Prefect server '{NO_SERVER}' \(.*PREFECT_API_URL\): .*refused",
    ):
        require_cluster(settings(tmp_path, like_here), NO_SERVER.replace("://", "://me:hidden/X@"))


def test_a_worker_that_sees_another_store_is_named(like_here: str, prefect_api: str) -> None:
    # What each process sees there is its own.
    store = Path("/proc/self/cwd/no-such-store")
    try:
        with pytest.raises(InputError, match=rf"^{named(like_here)} does not see run\.store='{store}'"):
            require_cluster(settings(store, like_here), prefect_api)
    finally:
        store.rmdir()


def test_a_worker_that_can_only_read_the_store_is_named(tmp_path: Path, like_here: str, prefect_api: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Client(like_here, set_as_default=False) as client:
        client.run(resource.setrlimit, resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(
                InputError, match=rf"^{named(like_here)} can't keep results: run\.store='{tmp_path}' can't be written: "
            ):
                require_cluster(settings(tmp_path, like_here), prefect_api)
        finally:
            client.run(resource.setrlimit, resource.RLIMIT_FSIZE, before)


def test_what_keeps_a_worker_from_a_bucket_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setattr(bucket, "_PAUSES_SECONDS", ())
    bucket._connected.cache_clear()
    try:
        seen = worker_report("s3://bucket/artifacts", "cache", "mark", "said", NO_SERVER)
    finally:
        bucket._connected.cache_clear()
    assert seen.store.startswith("run.store='s3://bucket/artifacts' can't be read: Could not connect")
    assert "hidden" not in seen.store


def test_a_gpu_that_no_worker_has_is_named(tmp_path: Path, like_here: str, prefect_api: str) -> None:
    with pytest.raises(InputError, match=r"has no worker with a GPU, which run\.device asks for; .*--resources GPU=1"):
        require_cluster(settings(tmp_path, like_here, device="cuda"), prefect_api)


@pytest.mark.drawn(0)
def test_a_gpu_that_a_worker_has_passes(tmp_path: Path, empty: str, prefect_api: str) -> None:
    with added_worker(empty, os.environ, tmp_path, "--resources", "GPU=1"):
        require_cluster(settings(tmp_path / "store", empty, device="cuda"), prefect_api)


@pytest.mark.drawn(0)
def test_a_worker_with_several_threads_is_named(tmp_path: Path, empty: str, prefect_api: str) -> None:
    with (
        added_worker(empty, os.environ, tmp_path, "--nthreads", "2"),
        pytest.raises(InputError, match=rf"^{named(empty)} has 2 threads; allowed: 1, .* --nworkers 2$"),
    ):
        require_cluster(settings(tmp_path / "store", empty), prefect_api)


def with_other_code(folder: Path) -> dict[str, str]:
    """The environment of a process that has the project with a changed module."""
    for package in ("fedfisher_core", "tasks", "flows"):
        shutil.copytree(ROOT / package, folder / package)
    with (folder / "tasks/stages.py").open("a") as file:
        file.write("# Changed.\n")
    return os.environ | {"PYTHONPATH": str(folder)}


def test_a_worker_with_other_code_is_named_and_one_that_comes_later_refuses_what_others_do(
    tmp_path: Path, like_here: str, prefect_api: str
) -> None:
    store = Store(tmp_path / "store")
    with ExitStack() as stack:
        client = stack.enter_context(Client(like_here, set_as_default=False))
        (first,) = client.nthreads()
        late = stack.enter_context(added_worker(like_here, with_other_code(tmp_path), tmp_path))
        work = Guarded(versions(), store, stack.enter_context(store.marked()), partial(int, "7"))
        assert client.submit(work, workers=[first], pure=False).result() == 7
        with pytest.raises(JobError, match=r"^a Dask worker on .* has fedfisher's code [0-9a-f]+; allowed: [0-9a-f]+$"):
            client.submit(work, workers=[late], pure=False).result()
        with pytest.raises(
            InputError, match=rf"^{named(like_here)} has fedfisher's code [0-9a-f]+; allowed, as here: "
        ):
            require_cluster(settings(tmp_path / "store", like_here), prefect_api)


@pytest.mark.drawn(0)
def test_a_worker_that_comes_later_and_does_not_see_the_store_refuses_what_others_do(
    tmp_path: Path, like_here: str
) -> None:
    store, elsewhere = Store(tmp_path / "store"), Store(tmp_path / "elsewhere")
    with store.marked() as mark, Client(like_here, set_as_default=False) as client:
        unseen = Guarded(versions(), elsewhere, mark, partial(int, "7"))
        with pytest.raises(
            JobError,
            match=rf"^a Dask worker on .* does not see run\.store='{elsewhere.root}': .*; allowed: one that all",
        ):
            client.submit(unseen, pure=False).result()
        seen = Guarded(versions(), store, mark, partial(int, "7"))
        assert client.submit(seen, pure=False).result() == 7


def test_a_full_disk_is_named_with_its_machine(tmp_path: Path, like_here: str) -> None:
    store = Store(tmp_path / "store")

    # Dask sends a function that no module has as it is.
    def fail() -> None:
        full, bad = UnwritableError("run.store can't be written: No space left on device"), InputError("alpha=0")
        raise JobsFailedError({name: Failure.of(name, error) for name, error in (("a", full), ("b", bad))})

    with store.marked() as mark, Client(like_here, set_as_default=False) as client:
        full = Guarded(versions(), store, mark, fail)
        with pytest.raises(JobsFailedError) as caught:
            client.submit(full, pure=False).result(timeout=HANG_SECONDS)
    full, bad = caught.value.failures["a"], caught.value.failures["b"]
    assert re.match(r"a Dask worker on .*: run\.store can't be written: No space left on device$", full.reason)
    # Another machine may do better, and other settings would not.
    assert (full.by_user, bad.by_user, bad.reason) == (False, True, "alpha=0")


def test_work_that_a_worker_can_not_read_is_told_with_its_machine(tmp_path: Path, like_here: str) -> None:
    # As where a plug-in of the same version has other code there.
    def read() -> None:
        raise ImportError("cannot import name 'median' from 'medians'")

    store = Store(tmp_path / "store")
    with store.marked() as mark, Client(like_here, set_as_default=False) as client:
        unread = Guarded(versions(), store, mark, read)
        with pytest.raises(JobError, match=r"^a Dask worker on .* can't read a task: cannot import name 'median'"):
            client.submit(unread, pure=False).result(timeout=HANG_SECONDS)


def test_workers_that_do_not_answer_are_named(
    tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.cluster._ANSWER_SECONDS", 3)
    monkeypatch.setattr("flows.cluster._PATIENCE_SECONDS", 2)
    with dask_scheduler(os.environ) as scheduler, dask_worker(scheduler, os.environ, tmp_path) as worker:
        wait_for_workers(scheduler, 1)
        nanny = psutil.Process(worker.process)
        processes = [nanny, *nanny.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            time.sleep(3)
            with pytest.raises(InputError, match=r"not all Dask workers have answered within 3 s; silent: tcp://"):
                require_cluster(settings(tmp_path / "store", scheduler), prefect_api)
        finally:
            for process in processes:
                process.resume()


def test_a_worker_without_the_project_is_named(tmp_path: Path, empty: str, prefect_api: str) -> None:
    with (
        added_worker(empty, os.environ, tmp_path, "--no-nanny", program=WITHOUT_PROJECT),
        pytest.raises(InputError, match=rf"^{named(empty)} can't run this project's code: .*ModuleNotFoundError"),
    ):
        require_cluster(settings(tmp_path / "store", empty), prefect_api)
