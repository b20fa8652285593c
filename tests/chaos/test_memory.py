"""The command's memory over many tasks."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.scale import scaled
from tests.end_to_end.conftest import Workplace
from tests.plugins.installed import HERE, environment, install

pytestmark = pytest.mark.end_to_end

TASKS = scaled(test=100, chaos=2000)
GROWTH_MB = 100.0


def resident_mb(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.timeout(120 + TASKS)
def test_memory_does_not_grow_with_tasks(new_place: Callable[..., Workplace], tmp_path: Path) -> None:
    entry_points = {"fedfisher.experiments": "coin = coin_experiment"}
    site = install(
        tmp_path / "site", package="coin-experiment", version="1", entry_points=entry_points, sources=HERE / "coin"
    )
    usual = new_place("memory")
    place = Workplace(usual.folder, environment(site, usual.environment))
    biases = [(task + 1) / (TASKS + 1) for task in range(TASKS)]
    place.write("coins.yaml", {"experiment": "coin", "name": "coins", "biases": biases, "run": {"workers": 2}})
    process = place.start("fedfisher", "run", "coins.yaml")
    samples: list[tuple[int, float]] = []
    while not samples or samples[-1][0] < TASKS:
        assert process.poll() is None, process.communicate()
        samples.append((len(place.artifacts("coins")), resident_mb(process.pid)))
        time.sleep(0.2)
    _, err = process.communicate()
    assert process.returncode == 0, err
    warm = max(size for done, size in samples if done <= TASKS // 2)
    grown = max(size for _, size in samples) - warm
    assert grown <= GROWTH_MB, f"{warm:.0f} MB after {TASKS // 2} tasks, {grown:.0f} MB more after {TASKS}"
