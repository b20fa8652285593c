"""The command's memory over many jobs of every kind that a benchmark has."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from tests.chaos.scale import scaled
from tests.end_to_end.conftest import Workplace

pytestmark = pytest.mark.end_to_end

TASKS = scaled(test=0, chaos=1000)
GROWTH_MB = 100.0
FEW_SEEDS = 3
# A federation of three clients: where they start, the split, three of each of training, statistics and sending by two
# methods with one upload of their own, and three aggregations.
TASKS_A_SEED = 1 + 1 + 3 * 4 + 3
# The kinds of job that compute, in the order in which the run begins them. Each needs its own working memory once.
STAGES = ("clients", "statistics", "aggregates")
WARM = 0.2


@dataclass(frozen=True)
class Sample:
    """The command's memory, and how many jobs of each kind were done."""

    megabytes: float
    done: dict[str, int]


def anonymous_mb(process: int) -> float | None:
    """Memory of a process that is no file's; the system takes back what it keeps of files when it needs to.

    A process that has ended, and that its parent has not waited for yet, has none.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("RssAnon")), None)


def done_by_kind(artifacts: Path) -> dict[str, int]:
    """How many artifacts of each kind are stored."""
    kinds = [folder for folder in artifacts.glob("*") if folder.is_dir() and not folder.name.startswith(".")]
    return {kind.name: sum(1 for _ in kind.glob("*/manifest.json")) for kind in kinds}


def growth_within(samples: list[Sample], *, stage: str) -> float:
    """Megabytes by which a stage's last fifth stands above its first, by medians: single looks differ by some 60 MB."""
    jobs = samples[-1].done[stage]
    begun = [sample for sample in samples if 0 < sample.done.get(stage, 0) < jobs]
    first = [sample.megabytes for sample in begun if sample.done[stage] <= WARM * jobs]
    end = [sample.megabytes for sample in begun if sample.done[stage] >= (1 - WARM) * jobs]
    return median(end) - median(first)


def watched(place: Workplace, seeds: int) -> list[Sample]:
    """Run short clients of several sizes, whose jobs are as many and as mixed as those of a long run."""
    settings = {
        "name": "memory",
        "seeds": list(range(seeds)),
        "model": {"name": "mlp"},
        "partition": {"alpha": [0.5], "clients": [3]},
        "train": {"steps": 2},
        "methods": {"fedavg": {}, "fedfisher_diag": {}, "ensemble": {}},
        "run": {"runner": "threads", "workers": 2},
        # What traces networks takes 120 MB once.
        "tracking": {"models": "none"},
    }
    place.write("params.yaml", settings)
    process = place.start("fedfisher", "run")
    samples: list[Sample] = []
    while process.poll() is None:
        if (size := anonymous_mb(process.pid)) is not None:
            samples.append(Sample(megabytes=size, done=done_by_kind(place.folder / "artifacts")))
        time.sleep(0.5)
    _, err = process.communicate()
    assert process.returncode == 0, err
    return samples


def most_while_reporting(samples: list[Sample]) -> float:
    """Megabytes at most after the last job, while results, page and MLflow's runs are written."""
    return max(sample.megabytes for sample in samples if sample.done == samples[-1].done)


@pytest.mark.skipif(not TASKS, reason="takes minutes: make chaos")
@pytest.mark.timeout(3600)
def test_memory_does_not_grow_with_tasks(new_place: Callable[..., Workplace]) -> None:
    few = watched(new_place("few"), seeds=FEW_SEEDS)
    samples = watched(new_place("many"), seeds=math.ceil(TASKS / TASKS_A_SEED))
    last = samples[-1].done
    assert sum(last.values()) >= TASKS
    growth = {stage: growth_within(samples, stage=stage) for stage in STAGES}
    reporting = {sum(each[-1].done.values()): most_while_reporting(each) for each in (few, samples)}
    print(f"{last}: growth in MB {growth}; MB while results are written, by jobs: {reporting}")
    assert sum(max(0.0, grown) for grown in growth.values()) <= GROWTH_MB
    # Drawing a page and importing MLflow takes some 200 MB once, however many jobs there were.
    assert most_while_reporting(samples) - most_while_reporting(few) <= GROWTH_MB
