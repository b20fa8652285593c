"""A cluster whose workers have all left is told of once, until some come and leave again."""

import logging
import os
import time
from pathlib import Path

import pytest
from distributed import Client

from flows import desertion
from flows.desertion import warned_of
from tests.servers import added_worker, dask_scheduler


def until_it_said(caplog: pytest.LogCaptureFixture, times: int) -> list[str]:
    deadline = time.monotonic() + 20
    while len(caplog.messages) < times and time.monotonic() < deadline:
        time.sleep(0.05)
    # Nor does it say so again.
    time.sleep(0.5)
    return caplog.messages


def test_a_cluster_that_all_workers_have_left_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(desertion, "_SECONDS", 0.1)
    caplog.set_level(logging.WARNING, "fedfisher")
    with (
        dask_scheduler(os.environ) as scheduler,
        Client(scheduler, set_as_default=False) as client,
        warned_of(client, scheduler),
    ):
        said = (
            f"run.dask.scheduler={scheduler!r} has no workers any more; the run waits for some: "
            f"dask worker {scheduler} --nthreads 1"
        )
        assert until_it_said(caplog, 1) == [said]
        with added_worker(scheduler, os.environ, tmp_path):
            time.sleep(0.5)
            assert caplog.messages == [said]
        assert until_it_said(caplog, 2) == [said, said]
    time.sleep(0.5)
    assert caplog.messages == [said, said]
