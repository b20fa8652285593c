"""Seconds of processors are those of the work itself, or are not given."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fedfisher_core.engine.costs import Spent, Stopwatch, at_work, total, usable_processors
from fedfisher_core.settings import RunSettings
from flows.submitting import started


def spin(seconds: float) -> None:
    """Keep a processor busy until this thread has used so many of its seconds."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_sleeping_takes_no_processor() -> None:
    watch = Stopwatch()
    time.sleep(0.2)
    spent = watch.spent()
    assert spent.processor_seconds is not None
    assert spent.processor_seconds < spent.seconds / 2


def test_other_threads_do_not_count_with_one_thread_for_tensors() -> None:
    watch = Stopwatch()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(spin, 0.3).result()
    spent = watch.spent()
    assert spent.seconds >= 0.3
    assert spent.processor_seconds is not None
    assert spent.processor_seconds < 0.3


def test_threads_that_help_count_where_a_task_has_its_process_to_itself() -> None:
    torch.set_num_threads(2)
    with at_work():
        watch = Stopwatch()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(spin, 0.1).result()
        spent = watch.spent()
    assert spent.processor_seconds is not None
    assert spent.processor_seconds >= 0.1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("other_first", [True, False])
def test_what_helps_two_tasks_of_a_process_is_not_told_apart(threads: int, other_first: bool) -> None:
    begun, ended = threading.Event(), threading.Event()

    def other() -> None:
        with at_work():
            begun.set()
            ended.wait()

    with ThreadPoolExecutor(1) as pool:
        if other_first:
            pool.submit(other)
            begun.wait()
        # The number holds for the thread that sets it.
        torch.set_num_threads(threads)
        with at_work():
            watch = Stopwatch()
            if not other_first:
                pool.submit(other)
                begun.wait()
            ended.set()
            assert (watch.spent().processor_seconds is None) == (threads == 2)
    with at_work():
        assert Stopwatch().spent().processor_seconds is not None


def test_no_processor_does_the_work_of_a_gpu() -> None:
    assert Stopwatch("cuda").spent().processor_seconds is None


def test_sums_and_parts() -> None:
    one, other, unknown = Spent(2.0, 1.0), Spent(1.0, 0.5), Spent(1.0, None)
    assert total([one, other]) == Spent(3.0, 1.5)
    assert total([]) == Spent(0.0, 0.0)
    assert one - other == Spent(1.0, 0.5)
    assert other - one == Spent(0.0, 0.0)
    assert one.share(0.25) == Spent(0.5, 0.25)
    for found in (one + unknown, unknown + one, total([one, unknown, one])):
        assert found.processor_seconds is None
    assert (one - unknown) == Spent(1.0, None)
    assert unknown.share(0.5) == Spent(0.5, None)


def test_what_is_written_is_read() -> None:
    for spent in (Spent(2.0, 1.0), Spent(2.0, None)):
        for name in ("", "client_"):
            assert Spent.of(spent.timings(name), name) == spent
    # As artifacts were written before processors' seconds were counted.
    assert Spent.of({"seconds": 3.0, "peak_memory_bytes": 1.0}) == Spent(3.0, None)


def test_a_system_that_binds_no_process_has_all_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert usable_processors() == 7
    with started(RunSettings(runner="threads")) as workers:
        assert workers.count == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_processors() == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no process")
def test_a_process_that_is_bound_has_the_processors_that_it_may_use() -> None:
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
    code += "from fedfisher_core.engine.costs import usable_processors; print(usable_processors())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
