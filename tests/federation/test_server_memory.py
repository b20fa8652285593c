"""What servers hold at once, and which federations are refused for it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.uploads import decode, encode
from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.federation import server_memory
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.server_memory import held_bytes
from fedfisher_core.federation.uploads import schema_of
from fedfisher_core.models.memory import machine_bytes
from tests.tiny import tiny_settings

CLIENTS = 3


def federations(folder: Path, *methods: str, **changes: Any) -> Federations:
    settings = tiny_settings(folder, methods={name: {} for name in methods}, partition={"clients": CLIENTS}, **changes)
    return check_federations(settings)


@pytest.mark.parametrize(
    ("method", "times"), [("fedfisher_diag", 1), ("fedfisher_kfac", CLIENTS), ("ensemble", CLIENTS)]
)
def test_it_is_what_decoded_uploads_take(workplace: Path, method: str, times: int) -> None:
    found = federations(workplace, method)
    (federation,), bound = found.all, found.methods[method]
    schema = schema_of(bound, federation.spec)
    tensors = {
        section.statistic: {tensor.name: torch.zeros(tensor.shape) for tensor in section.tensors}
        for section in schema.sections
    }
    statistics = [one.of(tensors[one.name]) for one in bound.method.uploads]
    arrived = decode(encode(schema, statistics, num_examples=5), schema, bound.method.uploads, torch.device("cpu"))
    taken = sum(one.nbytes for statistic in arrived.statistics.values() for one in statistic.tensors.values())
    assert held_bytes(bound, federation, CLIENTS) == times * taken


def test_what_does_not_fit_the_machine_is_refused_with_its_size(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = federations(workplace, "fedfisher_kfac", "fedavg")
    (federation,), bound = found.all, found.methods["fedfisher_kfac"]
    needed = held_bytes(bound, federation, CLIENTS)
    monkeypatch.setattr(server_memory, "machine_bytes", lambda: needed - 1)
    with pytest.raises(
        InputError, match=r"^method 'fedfisher_kfac' holds the uploads of all clients at once, which for 3 clients with"
    ):
        federations(workplace, "fedavg", "fedfisher_kfac")
    federations(workplace, "fedavg", "fedfisher_diag")
    monkeypatch.setattr(server_memory, "machine_bytes", lambda: needed)
    federations(workplace, "fedavg", "fedfisher_kfac")


def test_a_machine_that_does_not_say_refuses_nothing(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_memory, "machine_bytes", lambda: None)
    federations(workplace, "fedfisher_kfac")


def test_other_machines_have_memory_of_their_own(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_memory, "machine_bytes", lambda: 0)
    with pytest.raises(InputError, match=r"this machine has 0\.0 GiB"):
        federations(workplace, "fedfisher_kfac")
    federations(workplace, "fedfisher_kfac", run={"runner": "dask", "dask": {"scheduler": "tcp://10.0.0.1:8786"}})


def test_this_machine_says_what_it_has() -> None:
    there = machine_bytes()
    assert there is None or 2**28 < there < 2**50


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (("fedavg", "fedfisher_diag", "ensemble"), "method 'ensemble' holds the uploads of all clients at once, which"),
        (("fedavg", "fedfisher_diag"), "method 'fedfisher_diag' holds the upload of one client at a time, which with"),
    ],
)
def test_a_plan_says_what_holds_most(workplace: Path, methods: tuple[str, ...], said: str) -> None:
    plan = make_plan(tiny_settings(workplace, methods={name: {} for name in methods}, partition={"clients": CLIENTS}))
    (federation,) = plan.federations.all
    assert plan.largest is not None
    assert plan.largest.said.startswith(said)
    assert plan.largest.bytes == max(
        held_bytes(bound, federation, CLIENTS) for bound in plan.federations.methods_of(federation).values()
    )
