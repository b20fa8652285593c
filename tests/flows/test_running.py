"""How the command that runs experiments ends."""

from typing import Any

import httpx
import pytest

from fedfisher_core.engine.errors import OutputError
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
        running._run_one(BenchmarkSettings(name="mine"), server)
