"""What makes one of MLflow's runs the same as before, and what makes it another."""

from dataclasses import replace
from typing import Any

import pytest

from fedfisher_core.reporting.runs import Record

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
