"""Each upload is decoded once, and counts once."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client import uploads as transport
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.costs import Spent
from fedfisher_core.engine.store import read_timings
from fedfisher_core.federation import aggregating, aggregation
from fedfisher_core.federation.global_models import read_model
from fedfisher_core.methods.method import method, methods
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import mean_parameters
from tests.walked import Walked, walk_tiny

CLIENTS = 3
MANY_LOOKS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fisher_merge": {},
    "regmean": {},
    "fedfisher_diag": {},
    "gradient_matching": {},
    "fedfisher_kfac": {},
    "ensemble": {},
}


@pytest.fixture(name="decodes")
def _decodes(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """How often each payload was decoded."""
    counted: Counter[bytes] = Counter()

    def counting(data: bytes, *given: Any, decode: Callable[..., Upload] = aggregation.decode) -> Upload:
        counted[data] += 1
        return decode(data, *given)

    monkeypatch.setattr(aggregation, "decode", counting)
    return counted


@pytest.fixture(name="looks_often")
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> str:
    """A method of another package that makes do with sums, and goes through the clients three times."""
    assert "fedavg" in list(methods)
    for kept in ("_things", "_origins"):
        monkeypatch.setattr(methods, kept, dict(getattr(methods, kept)))

    @method("looks_often", uploads=(Weights,), sees_each=(), reference="https://example.org")
    def looks_often(server: Server, uploads: Sequence[Upload]) -> Aggregate:
        for _ in range(2):
            mean_parameters(uploads)
        return Aggregate.of(mean_parameters(uploads))

    return "looks_often"


def walked(folder: Path, chosen: Mapping[str, Mapping[str, Any]]) -> Walked:
    return walk_tiny(folder, chosen, partition={"clients": CLIENTS})


@pytest.mark.parametrize("name", MANY_LOOKS)
def test_an_upload_is_decoded_once(workplace: Path, decodes: Counter[bytes], name: str) -> None:
    walked(workplace, {name: MANY_LOOKS[name]})
    assert list(decodes.values()) == [1] * CLIENTS


def test_so_it_is_by_methods_of_others(workplace: Path, decodes: Counter[bytes], looks_often: str) -> None:
    walked(workplace, {looks_often: {}})
    assert list(decodes.values()) == [1] * CLIENTS


def test_large_uploads_are_held_one_at_a_time(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, decodes: Counter[bytes], looks_often: str
) -> None:
    kept = walked(workplace / "kept", {looks_often: {}})
    decodes.clear()
    monkeypatch.setattr(aggregation, "KEPT_BYTES", 0)
    anew = walked(workplace / "anew", {looks_often: {}})
    assert list(decodes.values()) == [3] * CLIENTS
    (ours,), (theirs,) = (read_model(done.aggregate(looks_often), done.federation).networks for done in (kept, anew))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


class _Ticking:
    """A watch by which each piece of work takes one second, and a processor half of it."""

    def __init__(self, device: str = "cpu") -> None:
        pass

    def spent(self) -> Spent:
        return Spent(1.0, 0.5)


class _OfServer(_Ticking):
    """The same for the whole of the server's work."""

    def spent(self) -> Spent:
        return Spent(100.0, 50.0)


def test_what_is_decoded_again_is_no_work_of_the_server(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, looks_often: str
) -> None:
    monkeypatch.setattr(aggregation, "KEPT_BYTES", 0)
    monkeypatch.setattr(transport, "Stopwatch", _Ticking)
    monkeypatch.setattr(aggregating, "Stopwatch", _OfServer)
    timings = read_timings(walked(workplace, {looks_often: {}}).aggregate(looks_often))
    # The server's work is timed in two pieces, the method's and what follows; two of three decodes of a client repeat.
    assert timings["seconds"] == 2 * 100 - 2 * CLIENTS
    assert timings["processor_seconds"] == 2 * 50 - 2 * CLIENTS / 2
