"""Whole tiny benchmarks of methods that make a head of statistics of features, and are sent no weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.methods.method import methods
from tests import tiny
from tests.walked import Walked, walk_tiny

METHODS = ("afl", "fedcgs", "gh_lda", "fedpft")
LINEAR: dict[str, Any] = {"name": "linear", "bias": True}
UNCOMPRESSED: dict[str, Any] = {"wire": {"budget": "none"}}
CLIENTS, FEATURES = 3, tiny.SIZE**2
HEADER = 256


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that finds the data set."""
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tiny.write_tiny(tmp_path / "data")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def heads(done: Walked, method: str) -> dict[str, torch.Tensor]:
    return read_tensors(done.aggregate(method), "network_0.safetensors")


def test_an_upload_costs_what_is_said_and_no_weights(place: Path) -> None:
    rows = walk_tiny(place, dict.fromkeys(METHODS, UNCOMPRESSED), model=LINEAR).rows
    moments = 32 * (tiny.CLASSES + tiny.CLASSES * FEATURES + FEATURES**2)
    gaussians = 32 * (tiny.CLASSES + 2 * tiny.CLASSES * FEATURES)
    bits = {"afl": moments, "fedcgs": moments, "gh_lda": moments, "fedpft": gaussians}
    assert {name: row.upload_bits for name, row in rows.items()} == {
        name: CLIENTS * (HEADER + one) for name, one in bits.items()
    }
    assert all(row.accuracy > 0.6 for row in rows.values())


@pytest.mark.parametrize(("covariance", "numbers"), [("spherical", 1), ("full", FEATURES * (FEATURES + 1) // 2)])
def test_covariances_cost_what_is_said(place: Path, covariance: str, numbers: int) -> None:
    statistics = {"class_gaussians": {"covariance": covariance}}
    (row,) = walk_tiny(place, {"fedpft": UNCOMPRESSED}, model=LINEAR, statistics=statistics).rows.values()
    assert row.upload_bits == CLIENTS * (HEADER + 32 * tiny.CLASSES * (1 + FEATURES + numbers))
    assert row.accuracy > 0.6


@pytest.mark.parametrize("method", [name for name in methods if not methods.get(name).trains])
def test_what_needs_no_training_is_the_same_after_any_and_answers_for_none(place: Path, method: str) -> None:
    little, much = (
        walk_tiny(place, {"fedavg": {}, method: {}}, model=LINEAR, train={"epochs": epochs}) for epochs in (1, 3)
    )
    for name, one in heads(little, method).items():
        assert torch.equal(one, heads(much, method)[name])
    assert any(not torch.equal(one, heads(much, "fedavg")[name]) for name, one in heads(little, "fedavg").items())
    rows = much.rows
    assert rows[method].client_train_seconds == 0 < rows["fedavg"].client_train_seconds
    assert sum(rows[method].client_statistics_seconds.values()) > 0


def test_in_the_budget_of_federated_averaging_they_cost_no_more(place: Path) -> None:
    rows = walk_tiny(place, {name: {} for name in ("fedavg", *METHODS)}, model=LINEAR).rows
    least = 0.9 * rows["fedavg"].upload_bits
    assert all(least < rows[name].upload_bits <= rows["fedavg"].upload_bits for name in METHODS)


@pytest.mark.parametrize("method", ["afl", "fedcgs", "gh_lda"])
def test_who_holds_what_does_not_change_the_head(place: Path, method: str) -> None:
    chosen = {method: UNCOMPRESSED}
    one = walk_tiny(place, chosen, model=LINEAR)
    other = walk_tiny(place, chosen, model=LINEAR, partition={"alpha": [5.0], "clients": [5]})
    sizes = [len(done.plan.federations.clients(done.federation)) for done in (one, other)]
    assert sizes == [3, 5]
    for name, tensor in heads(one, method).items():
        torch.testing.assert_close(heads(other, method)[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["afl", "fedcgs", "gh_lda"])
def test_a_secure_sum_gives_the_same_head(place: Path, method: str) -> None:
    secure = {"method": method, "wire": {"budget": "none", "server_view": "secure_sum"}}
    done = walk_tiny(place, {method: UNCOMPRESSED, "secure": secure}, model=LINEAR)
    for name, tensor in heads(done, method).items():
        torch.testing.assert_close(heads(done, "secure")[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "tiny"}}, "can't serve model 'tiny': .*allowed: one Linear alone"),
        ({"privacy": {"epsilon": 8.0, "delta": 1e-3}}, "privacy with statistic '(label_counts|class_)"),
    ],
)
def test_what_they_can_not_do_is_refused_before_any_work(
    place: Path, method: str, changes: dict[str, Any], message: str
) -> None:
    settings = tiny.tiny_settings(place, methods={method: UNCOMPRESSED}, **({"model": LINEAR} | changes))
    with pytest.raises(InputError, match=f"method '{method}'.*{message}"):
        check_federations(settings)


def test_a_secure_sum_of_what_each_client_draws_from_is_refused(place: Path) -> None:
    wire = {"wire": {"budget": "none", "server_view": "secure_sum"}}
    with pytest.raises(
        InputError, match=r"'fedpft' needs each client's own label_counts, class_gaussians; allowed: .*fedcgs"
    ):
        check_federations(tiny.tiny_settings(place, methods={"fedpft": wire}, model=LINEAR))
