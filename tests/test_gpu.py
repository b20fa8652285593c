"""Whole tiny experiments on a GPU: the same bits whenever they are repeated, and near those of the processor."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from fedfisher_core.engine.arithmetic import reproducible_gpu
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import open_store
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.experiments.privacy_attack import plan as attack_plan
from fedfisher_core.models.memory import working_memory
from tests import arranged, tiny
from tests.experiments.privacy_attack import test_jobs
from tests.methods.every import NAMES, OF_ADAPTERS, OF_FEATURES, OF_ROWS, QUICK
from tests.models.test_batch_norm import SPEC
from tests.walked import Walked, walk

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

GPU = "cuda"
OBJECTIVES = (
    *("plain", "fedprox", "fedprox_adaptive", "label_smoothing", "logit_adjustment", "restricted_softmax"),
    *("moon", "prototypes", "scaffold"),
)
OF_ANY = [name for name in NAMES if name not in (*OF_ADAPTERS, *OF_FEATURES, *OF_ROWS)]
# By how much losses may differ where rounding decides, as it does between two processors: at what a method divides by
# or matches, and at the noise that privacy adds to Fishers of a few examples.
LOOSE = {"fedbens_mixture": 0.3, "dense": 0.3, "pfnm": 0.3, "pfnm_original": 0.3, "mats": 0.1, "privacy": 0.1}
SERVED: dict[str, Any] = {name: {} for name in ("fedavg", "fedfisher_diag", "fedfisher_kfac", "regmean")}

BENCHMARKS: dict[str, dict[str, Any]] = {
    "every method": {"methods": {name: QUICK.get(name, {}) for name in OF_ANY}, "fisher": {"estimator": "exact"}},
    "rows": {"model": {"name": "mlp"}, "methods": {name: QUICK[name] for name in OF_ROWS} | {"fedavg": {}}},
    "adapters": {"model": {"name": "adapted"}, "methods": {name: {} for name in OF_ADAPTERS}},
    "heads": {"model": {"name": "linear", "bias": True}, "methods": {name: {} for name in OF_FEATURES}},
    "batch normalisation": {"model": {"name": SPEC.name}, "methods": SERVED},
    "cropped and mirrored": {"data": {"dataset": "tiny_augmented", "validation_size": 20}},
    "stochastic Fishers": {"methods": SERVED, "fisher": {"estimator": "monte_carlo"}},
    "nngeometry": {"methods": SERVED, "fisher": {"backend": "nngeometry"}},
    "objectives": {
        "methods": {"fedavg": {}},
        "train": {"objective": {name: {} for name in OBJECTIVES}, "momentum": 0.0},
        "rounds": {"count": 2},
    },
    "server optimisers": {
        "methods": {"fedavg": {}},
        "rounds": {
            "count": 3,
            "server_optimiser": {name: {} for name in ("fedavgm", "fedadagrad", "fedadam", "fedyogi")},
        },
    },
    "together": {"methods": {"fedavg": {}}, "train": {"together": 2}},
    "privacy": {
        "methods": {"fedavg": {}, "fedfisher_diag": {}},
        "privacy": {"epsilon": 8.0, "delta": 1e-3},
    },
    "secure sums": {"methods": {"fedavg": {"wire": {"budget": "none", "server_view": "secure_sum"}}}},
}


def repeated(folder: Path, changes: Mapping[str, Any], device: str) -> Walked:
    settings = tiny.tiny_settings(folder, **changes)
    run = settings.run.model_copy(update={"device": device})
    with reproducible_gpu():
        return walk(settings.model_copy(update={"run": run}))


def digests(outcome: Outcome) -> dict[str, str]:
    return {name: artifact.digest for name, artifact in outcome.artifacts.items()}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_is_the_same_when_repeated_and_near_the_processors(workplace: Path, name: str) -> None:
    on_gpu, again, on_cpu = (
        repeated(workplace / folder, BENCHMARKS[name], device)
        for folder, device in (("first", GPU), ("second", GPU), ("third", "cpu"))
    )
    assert not on_gpu.outcome.failed
    assert digests(on_gpu.outcome) == digests(again.outcome)
    rows, expected = (make_rows(one.plan, one.outcome) for one in (on_gpu, on_cpu))
    assert len(rows) == len(expected) > 0
    for row, other in zip(rows, expected, strict=True):
        assert row.loss is not None
        tolerance = LOOSE.get(name, LOOSE.get(row.method, 0.02))
        assert row.loss == pytest.approx(other.loss, abs=tolerance), (row.method, row.objective)


@pytest.mark.parametrize("model", ["small_gru", "small_transformer"])
def test_sequences_are_the_same_when_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(arranged.write(tmp_path / "data")))
    changes = {"data": {"dataset": "texts", "validation_size": 20}, "model": {"name": model}}
    first, second = (repeated(tmp_path / folder, changes, GPU) for folder in ("first", "second"))
    assert digests(first.outcome) == digests(second.outcome)


def test_an_attack_is_the_same_when_repeated(tmp_path: Path) -> None:
    outcomes = []
    for folder in ("first", "second"):
        settings = test_jobs.settings(tmp_path / folder)
        settings = settings.model_copy(update={"run": settings.run.model_copy(update={"device": GPU})})
        with reproducible_gpu():
            plan = attack_plan.make_plan(settings)
            outcomes.append(execute(plan.jobs, open_store(settings.run.store)))
    assert not outcomes[0].failed
    assert digests(outcomes[0]) == digests(outcomes[1])


def test_convolutions_and_products_keep_the_digits_of_single_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    images, filters = torch.randn(64, 32, 20, 20, generator=generator), torch.randn(64, 32, 5, 5, generator=generator)
    left, right = torch.randn(512, 512, generator=generator), torch.randn(512, 512, generator=generator)
    with reproducible_gpu():
        made = functional.conv2d(images.cuda(), filters.cuda()).cpu(), (left.cuda() @ right.cuda()).cpu()
    exact = functional.conv2d(images.double(), filters.double()), left.double() @ right.double()
    for one, other in zip(made, exact, strict=True):
        # Ten bits, as a GPU rounds unless it is told otherwise, are wrong by 3e-4.
        assert (one - other).norm() / other.norm() < 1e-6


def test_working_memory_is_that_of_the_gpus_tensors() -> None:
    device = torch.device(GPU)
    with working_memory(device) as peak:
        torch.ones(1 << 20, device=device)
    assert 4 << 20 <= peak.bytes < 5 << 20
