"""Results as tidy rows."""

from collections.abc import Mapping, Sequence

from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.reporting.rows import Row
from fedfisher_core.settings import Cell
from fedfisher_core.steps.aggregation import read_result
from fedfisher_core.steps.clients import POOLED
from fedfisher_core.steps.context import Context
from fedfisher_core.store import Artifact, read_timings


def make_row(
    context: Context,
    cell: Cell,
    label: str,
    bound: BoundMethod,
    clients: Mapping[int, Mapping[str, Artifact]],
    failed: Sequence[int],
    aggregate: Artifact,
) -> Row:
    """Gather what was measured of one method in one cell.

    Args:
        context: the benchmark.
        cell: which data set, how it is split, and the seed.
        label: what the settings call the method.
        bound: the method and its settings.
        clients: artifacts of the statistics by client and name.
        failed: clients that diverged.
        aggregate: the method's result.

    Returns:
        The row.
    """
    result = read_result(aggregate)
    measures = result["measures"]
    timings = read_timings(aggregate)
    members = [one for client, one in clients.items() if (client == POOLED) == bound.method.pooled]
    names = [kind.name for kind in bound.method.uploads if kind.name != "weights"]
    return Row(
        benchmark=context.settings.name,
        dataset=cell.dataset,
        model=cell.model,
        partition=cell.scheme,
        alpha=cell.alpha,
        num_clients=cell.clients,
        num_rounds=1,
        seed=cell.seed,
        method=label,
        method_settings=bound.described(),
        uploads={name: view.value for name, view in bound.method.views.items()},
        accuracy=measures["accuracy"],
        loss=measures["loss"],
        worst_client_accuracy=measures["worst_client_accuracy"],
        worst_class_accuracy=measures["worst_class_accuracy"],
        client_train_seconds=sum(read_timings(one["weights"])["seconds"] for one in members),
        client_statistics_seconds={name: sum(read_timings(one[name])["seconds"] for one in members) for name in names},
        server_seconds=timings["seconds"],
        upload_bits=result["upload_bits"],
        upload_bits_formula=result["upload_bits_formula"],
        download_bits=result["download_bits"],
        peak_memory_bytes=int(timings["peak_memory_bytes"]),
        uses_validation=result["uses_validation"],
        reference=not bound.method.one_shot,
        failed_clients=list(failed),
        artifact=aggregate.key,
    )
