"""The global networks of a benchmark that MLflow keeps, for others to load and to serve."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedfisher_core.engine.store import Store
from fedfisher_core.experiments.benchmark.rows import Role, Row, is_fens, is_local_mean, role_of
from fedfisher_core.experiments.benchmark.summary import summarise
from fedfisher_core.reporting.runs import Network, Record, Runs
from fedfisher_core.settings.work import KeptNetworks

if TYPE_CHECKING:
    from torch import Tensor, nn


def with_networks(runs: Runs, rows: Sequence[Any], store: Store, kept: KeptNetworks) -> Runs:
    """Let runs hold their global network.

    Args:
        runs: a single run for each row, in their order.
        rows: of any experiment; those of others than benchmarks have no networks.
        store: has the networks.
    """
    if kept == "none" or not all(isinstance(row, Row) for row in rows):
        return runs
    best = _best_of(rows)

    def holding(run: Record, row: Row) -> Record:
        if row is best or (kept == "all" and _has_global_network(row)):
            return replace(run, network=_network_of(row, store, is_best=row is best))
        return run

    return replace(runs, single=[holding(run, row) for run, row in zip(runs.single, rows, strict=True)])


def _best_of(rows: Sequence[Row]) -> Row | None:
    """Find the first seed of the method and setting with the highest mean accuracy; None without such a method.

    So no seed is chosen by its test accuracy.
    """
    # A method that lacks seeds may have the highest mean by chance.
    compared = [method for setting in summarise(rows) for method in setting.compared if method.best]
    if not compared:
        return None
    return min(max(compared, key=lambda method: method.accuracy.mean).rows, key=lambda row: row.seed)


def _has_global_network(row: Row) -> bool:
    return role_of(row) is not Role.ENSEMBLE and not (is_local_mean(row) or is_fens(row))


def _network_of(row: Row, store: Store, *, is_best: bool) -> Network:
    def load() -> "tuple[nn.Module, Tensor]":
        # Only a new network loads what makes networks of artifacts.
        from fedfisher.exporting import GlobalNetwork

        return GlobalNetwork.of(row, store).of_raw_examples()

    tags = {"dataset": row.dataset, "model": row.model, "method": row.method, "seed": str(row.seed)}
    return Network(
        name=f"fedfisher-{row.benchmark}",
        artifact=row.artifact,
        load=load,
        tags={**tags, "alpha": json.dumps(row.alpha), "accuracy": f"{row.accuracy:g}"},
        is_best=is_best,
    )
