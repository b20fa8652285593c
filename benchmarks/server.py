"""The server's step of every method on the mlp, against FedAvg's; run as `python -m benchmarks.server`.

Clients are trained for one epoch on the embedded digits. DENSE runs for two of its twenty epochs; the last lines say
what all of them take and which targets are met, by the clock.
"""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import open_store, read_timings
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.settings.reading import validate

FEW, MANY = 5, 30
SECONDS_FEW, SECONDS_MANY, SECONDS_DENSE = 10, 60, 30 * 60
# Gaussian distillation against the solution that it starts from, and against distillation by a generator.
TIMES_KFAC, PART_OF_DENSE = 5, 1 / 20
METHODS = (
    "fedavg",
    "fisher_merge",
    "regmean",
    "otfusion",
    "pfnm",
    "ma_echo",
    "ma_echo_official",
    "ma_echo_ot",
    "fedfish",
    "fedfisher_diag",
    "fedfisher_kfac",
    "gaussian_distillation",
)
DENSE_EPOCHS, MEASURED_EPOCHS = 20, 2


def server_steps(clients: int, methods: Mapping[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, float]]:
    """Train clients and time the server's step of methods.

    Args:
        clients: how many.
        methods: their settings by name.
        folder: where artifacts go.

    Returns:
        Seconds and peak working memory in bytes, by method.
    """
    content = {
        "seeds": 0,
        "partition": {"alpha": 0.5, "clients": clients},
        "model": {"name": "mlp"},
        "train": {"epochs": 1},
        "methods": dict(methods),
        "run": {"device": "cpu", "store": str(folder)},
    }
    federations = check_federations(validate(BenchmarkSettings, content))
    (place,) = federations.all
    jobs = {label: federations.aggregation(place, label) for label in methods}
    made = execute(jobs.values(), open_store(folder)).artifacts
    return {label: read_timings(made[job.name]) for label, job in jobs.items()}


def main() -> None:
    """Print seconds, their ratio to FedAvg's, memory, and the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    dense: dict[str, Any] = {"epochs": MEASURED_EPOCHS}
    with tempfile.TemporaryDirectory() as folder:
        few = server_steps(FEW, {name: {} for name in METHODS} | {"dense": dense}, Path(folder))
        many = server_steps(MANY, {"fedavg": {}, "otfusion": {}, "pfnm": {}}, Path(folder))
    for clients, found in ((FEW, few), (MANY, many)):
        print(f"mlp, {clients} clients, threads: {threads}")
        for name, timings in found.items():
            ratio = timings["seconds"] / found["fedavg"]["seconds"]
            memory = timings["peak_memory_bytes"] / 2**20
            print(f"  {name:18} {timings['seconds']:8.2f} s {ratio:9.1f} times FedAvg {memory:7.0f} MiB")
    # Distillation has limits of its own.
    closed = few.keys() - {"dense", "gaussian_distillation"}
    slowest = max(closed, key=lambda name: few[name]["seconds"])
    dense_seconds = few["dense"]["seconds"] / MEASURED_EPOCHS * DENSE_EPOCHS
    targets = {
        f"{FEW} clients, slowest without distillation: {slowest}": (few[slowest]["seconds"], SECONDS_FEW),
        f"{MANY} clients, otfusion": (many["otfusion"]["seconds"], SECONDS_MANY),
        f"{MANY} clients, pfnm": (many["pfnm"]["seconds"], SECONDS_MANY),
        f"{FEW} clients, dense, {DENSE_EPOCHS} epochs": (dense_seconds, SECONDS_DENSE),
    }
    distilled = few["gaussian_distillation"]["seconds"]
    ratios = {
        "gaussian_distillation / fedfisher_kfac": (distilled / few["fedfisher_kfac"]["seconds"], TIMES_KFAC),
        f"gaussian_distillation / dense, {DENSE_EPOCHS} epochs": (distilled / dense_seconds, PART_OF_DENSE),
    }
    for what, (seconds, limit) in targets.items():
        print(f"{'met   ' if seconds < limit else 'MISSED'}  {what:45} {seconds:.1f} s (below {limit})")
    for what, (ratio, most) in ratios.items():
        print(f"{'met   ' if ratio <= most else 'MISSED'}  {what:45} {ratio:.3f} (at most {most})")


if __name__ == "__main__":
    main()
