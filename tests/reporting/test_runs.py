"""What makes one of MLflow's runs the same as before, and what makes it another."""

from dataclasses import replace
from typing import Any

import pytest

from fedfisher_core.reporting.runs import Record, as_parameters

RECORD = Record(
    name="fedavg s=0",
    params={"method": "fedavg", "seed": "0"},
    metrics={"accuracy": 0.5},
    tags={"artifact": "key"},
    drawn_from=("digest",),
    draw=lambda: {"a.png": b""},
    series={"error": {1: 0.5}},
)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "fedavg s=1"},
        {"params": {"method": "fedavg", "seed": "1"}},
        {"metrics": {"accuracy": 0.6}},
        {"tags": {"artifact": "other"}},
        {"drawn_from": ("other",)},
        {"series": {"error": {1: 0.6}}},
        {"series": {}},
    ],
)
def test_whatever_a_run_holds_changes_its_content(changes: dict[str, Any]) -> None:
    changed = replace(RECORD, **changes)
    assert changed.content != RECORD.content
    assert (changed.identity != RECORD.identity) == ("params" in changes)


def test_the_order_and_the_drawing_change_nothing() -> None:
    turned = replace(RECORD, params=dict(reversed(RECORD.params.items())), draw=dict)
    assert (turned.content, turned.identity) == (RECORD.content, RECORD.identity)


def test_nested_settings_are_named_by_their_path() -> None:
    settings = {
        "solver": {"name": "adam", "steps": 3, "schedule": {"name": "cosine", "warm": None}},
        "steps": 7,
        "scales": [0.1, 0.9],
        "empty": {},
        "on": True,
        "wire": {"budget": "none"},
    }
    assert as_parameters(settings, within="method", taken=("steps",)) == {
        "solver": "adam",
        "solver.steps": "3",
        "solver.schedule": "cosine",
        "solver.schedule.warm": "none",
        "method.steps": "7",
        "scales": "[0.1, 0.9]",
        "empty": "{}",
        "on": "true",
        "wire.budget": "none",
    }


def test_settings_change_what_a_run_holds_and_not_which_it_is() -> None:
    one, other = (Record("name", {"i": "1"}, {}, {}, settings={"epochs": epochs}) for epochs in ("1", "2"))
    assert one.identity == other.identity
    assert one.content != other.content
