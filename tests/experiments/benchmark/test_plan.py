"""What a benchmark's plan refuses."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.plan import make_plan
from tests.tiny import tiny_settings

LABELS: dict[str, Any] = {"plain": {}, "same": {"name": "label_smoothing"}}


def settings(folder: Path, rounds: int, optimiser: str) -> Any:
    optimisers = {"average": {}, optimiser: {"name": "fedavgm"}}
    return tiny_settings(
        folder,
        methods={"fedavg": {}},
        train={"objective": LABELS},
        rounds={"count": rounds, "server_optimiser": optimisers},
    )


def test_two_algorithms_of_one_name_are_refused_before_any_work(workplace: Path) -> None:
    message = (
        "^method 'fedavg' with objective '(plain|same)' and server optimiser '(average|same)' and method 'fedavg' with "
        "objective '(plain|same)' and server optimiser '(average|same)' are both called 'fedavg, same'; allowed: labels"
    )
    with pytest.raises(InputError, match=message):
        make_plan(settings(workplace, 2, "same"))


@pytest.mark.parametrize(("rounds", "optimiser"), [(2, "other"), (1, "same")])
def test_names_that_differ_or_are_no_algorithms_are_planned(workplace: Path, rounds: int, optimiser: str) -> None:
    assert make_plan(settings(workplace, rounds, optimiser)).jobs
