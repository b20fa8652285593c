"""What the tasks of a run say where they fail, or fail at first."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.states import Failed

from fedfisher_core.engine.errors import InputError, OutputError, UnwritableError
from fedfisher_core.engine.failures import Failure, JobsFailedError
from fedfisher_core.reporting import chart_script
from tasks.common import step
from tasks.stages import report


def test_a_report_that_can_not_be_written_keeps_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_script, "write_script", lambda folder: None)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"the report can't be written to .*file/demo: .*; all results are kept"):
        report.fn(tmp_path / "file/demo", [], {"index.html": b""}, "")


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (InputError("alpha=0"), False),
        (RuntimeError("no\nmemory"), True),
        (JobsFailedError({"a": Failure.of("a", InputError("alpha=0"))}), False),
        (JobsFailedError({"a": Failure.of("a", UnwritableError("no memory"))}), True),
    ],
)
def test_what_may_pass_is_tried_again_and_told(error: Exception, again: bool, caplog: pytest.LogCaptureFixture) -> None:
    task: Any = step(run_name="count")(lambda: None).with_options(retries=1)
    state: Any = Failed(data=error)

    def asked(run_count: int) -> bool:
        run: Any = SimpleNamespace(run_count=run_count, name="count")
        return asyncio.run(task.retry_condition_fn(task, run, state))

    with caplog.at_level(logging.WARNING, logger="fedfisher"):
        assert asked(1) is again
        said = [one.getMessage() for one in caplog.records]
        assert len(said) == again
        assert all(one.startswith("count failed and is tried again: ") and one.endswith("no memory") for one in said)
        # The last failure is told by the run itself.
        asked(2)
        assert len(caplog.records) == again
