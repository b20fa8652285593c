"""The most accurate network of a benchmark, which MLflow registers for others to serve."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedfisher_core.engine.store import Store
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import summarise
from fedfisher_core.reporting.runs import Registered, Runs

if TYPE_CHECKING:
    from torch import Tensor, nn


def with_best(runs: Runs, rows: Sequence[Any], store: Store) -> Runs:
    """Let the run of the most accurate network have it registered.

    Args:
        runs: a single run for each row, in their order.
        rows: of any experiment; those of others than benchmarks have no networks.

    Returns:
        The same runs. The run that has its network registered is the first seed of the method and setting with the
        highest mean accuracy, so no seed is chosen by its test accuracy.
    """
    if not all(isinstance(row, Row) for row in rows):
        return runs
    compared = [method for setting in summarise(rows) for method in setting.compared]
    if not compared:
        return runs
    best = min(max(compared, key=lambda method: method.accuracy.mean).rows, key=lambda row: row.seed)

    def load() -> "tuple[nn.Module, Tensor]":
        # Only a new network loads what makes networks of artifacts.
        from fedfisher.exporting import GlobalNetwork

        return GlobalNetwork.of(best, store).of_raw_examples()

    tags = {"dataset": best.dataset, "model": best.model, "method": best.method, "seed": str(best.seed)}
    registered = Registered(
        name=f"fedfisher-{best.benchmark}",
        artifact=best.artifact,
        load=load,
        tags={**tags, "alpha": json.dumps(best.alpha), "accuracy": f"{best.accuracy:g}"},
    )
    place = list(rows).index(best)
    single = [replace(one, registered=registered) if i == place else one for i, one in enumerate(runs.single)]
    return replace(runs, single=single)
