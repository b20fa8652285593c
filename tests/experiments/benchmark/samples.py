"""Rows and reports for the tests; the numbers are made up and round."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

import numpy as np

from fedfisher_core.experiments.benchmark.figures import partition_grid
from fedfisher_core.experiments.benchmark.page import PartitionView, render_page
from fedfisher_core.experiments.benchmark.published import PublishedResult
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.reporting.page import PageData


def make_row(method: str = "fedavg", **changes: object) -> Row:
    values: dict[str, object] = {
        "benchmark": "sample",
        "dataset": "mnist",
        "model": "mlp",
        "partition": "dirichlet",
        "alpha": 0.1,
        "num_clients": 5,
        "num_rounds": 1,
        "seed": 0,
        "method": method,
        "method_settings": {},
        "uploads": {"weights": "sum"},
        "accuracy": 0.5,
        "loss": 1.0,
        "worst_client_accuracy": 0.4,
        "worst_class_accuracy": 0.3,
        "client_train_seconds": 10.0,
        "client_statistics_seconds": {},
        "server_seconds": 0.5,
        "upload_bits": 1_000_000,
        "upload_bits_formula": 999_000,
        "download_bits": 1_000_000,
        "peak_memory_bytes": 1_048_576,
        "uses_validation": False,
        "reference": False,
        "failed_clients": [],
        "artifact": f"{method}-key",
    }
    return Row(**(values | changes))  # type: ignore[arg-type]


def make_rows(methods: dict[str, float], *, seeds: int = 3, alphas: tuple[float | None, ...] = (0.1,)) -> list[Row]:
    return [
        make_row(
            method,
            seed=seed,
            alpha=alpha,
            partition="iid" if alpha is None else "dirichlet",
            accuracy=accuracy + 0.01 * seed,
            artifact=f"{method}-{alpha}-{seed}",
        )
        for alpha in alphas
        for method, accuracy in methods.items()
        for seed in range(seeds)
    ]


def make_page(**changes: object) -> PageData:
    values: dict[str, object] = {
        "title": "A sample",
        "benchmark": "sample",
        "command": "fedfisher run sample.yaml",
        "created": "2030-01-02 03:04 UTC",
        "versions": {"numpy": "9.9"},
        "settings": {"seeds": [0, 1], "data": {"dataset": "mnist"}},
        "settings_yaml": "seeds: [0, 1]\ndata:\n  dataset: mnist\n",
        "notes": "First paragraph.\n\nSecond paragraph.",
    }
    return PageData(**(values | changes))  # type: ignore[arg-type]


GRID = partition_grid(np.array([[5, 0], [1, 7]]), ["zero", "one"], "mnist, 2 clients")


def render(
    rows: Sequence[Row],
    *,
    partitions: Sequence[PartitionView] = (PartitionView(GRID, 0),),
    published: Sequence[PublishedResult] | None = None,
    failed_settings: Mapping[tuple[Setting, str], str] = MappingProxyType({}),
    **changes: object,
) -> str:
    shown = {
        "partitions": [asdict(view) for view in partitions],
        "failed": [
            {"setting": asdict(setting), "method": method, "reason": reason}
            for (setting, method), reason in failed_settings.items()
        ],
    }
    return render_page(make_page(shown=shown, **changes), rows, published)
