"""The command's memory over many jobs of every kind that a benchmark has."""

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.scale import scaled
from tests.end_to_end.conftest import Workplace

pytestmark = pytest.mark.end_to_end

TASKS = scaled(test=0, chaos=2000)
GROWTH_MB = 100.0
# A federation of three clients: where they start, the split, three of each of training, statistics and sending by two
# methods with one upload of their own, and three aggregations.
TASKS_A_SEED = 1 + 1 + 3 * 4 + 3
WARM_TENTHS = 2


def anonymous_mb(process: int) -> float | None:
    """Memory of a process that is no file's; the system takes back what it keeps of files when it needs to.

    A process that has ended, and nobody has asked about yet, has none.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("RssAnon")), None)


@pytest.mark.skipif(not TASKS, reason="takes minutes: make chaos")
@pytest.mark.timeout(3600)
def test_memory_does_not_grow_with_tasks(new_place: Callable[..., Workplace]) -> None:
    place = new_place("memory")
    seeds = math.ceil(TASKS / TASKS_A_SEED)
    settings = {
        "name": "memory",
        # Short clients of several sizes, whose jobs are as many and as mixed as those of a long run.
        "seeds": list(range(seeds)),
        "model": {"name": "mlp"},
        "partition": {"alpha": [0.5], "clients": [3]},
        "train": {"steps": 2},
        "methods": {"fedavg": {}, "fedfisher_diag": {}, "ensemble": {}},
        "run": {"runner": "threads", "workers": 2},
    }
    place.write("params.yaml", settings)
    process = place.start("fedfisher", "run")
    samples: list[tuple[int, float]] = []
    while process.poll() is None:
        done = len(list((place.folder / "artifacts").glob("*/*/manifest.json")))
        if done and (size := anonymous_mb(process.pid)) is not None:
            samples.append((done, size))
        time.sleep(1)
    _, err = process.communicate()
    assert process.returncode == 0, err
    jobs = samples[-1][0]
    working = {
        tenth: max(size for done, size in samples if done < jobs and 10 * done <= tenth * jobs)
        for tenth in (1, 2, 4, 6, 8, 10)
    }
    reporting = max(size for done, size in samples if done == jobs)
    print(f"{jobs} jobs, MB by tenths of them: {working}, and while results are written: {reporting:.0f}")
    assert working[10] - working[WARM_TENTHS] <= GROWTH_MB
    # Drawing a page and importing MLflow takes memory once, however many jobs there were.
    assert reporting - working[10] <= GROWTH_MB
