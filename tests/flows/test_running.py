"""How the command that runs experiments ends."""

from typing import Any

import httpx
import pytest

from fedfisher_core.engine.errors import (
    DivergedClientError,
    IncompleteError,
    InputError,
    LockedError,
    OutputError,
    UnwritableError,
)
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from flows import experiment, running
from flows.server import PrefectServer


def test_an_error_of_prefects_server_ends_a_run_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    request = httpx.Request("POST", "http://127.0.0.1:4200/api/flow_runs/")

    def refused(settings: Any) -> None:
        raise httpx.HTTPStatusError("500", request=request, response=httpx.Response(500, request=request))

    monkeypatch.setattr(running, "_connect", lambda server: None)
    monkeypatch.setattr(experiment, "flow_of", lambda name: refused)
    server = PrefectServer("http://127.0.0.1:4200/api")
    with pytest.raises(
        OutputError, match=r"no longer answers as it should \(HTTPStatusError\), so the run of mine has"
    ):
        running._run_flow(BenchmarkSettings(name="mine"), server)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("no"), 2),
        (DivergedClientError("nan"), 2),
        (IncompleteError("no", by_user=True, reported=True, failed=()), 2),
        (IncompleteError("no", by_user=False, reported=True, failed=()), 1),
        (LockedError("busy"), 1),
        (UnwritableError("full"), 1),
        (OSError("no"), 1),
    ],
)
def test_only_what_settings_mend_ends_with_2(error: Exception, code: int) -> None:
    assert running.code_of_error(error) == code
