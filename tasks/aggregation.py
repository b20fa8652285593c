"""The fan-in: one task for every method and cell."""

from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.settings import Cell
from fedfisher_core.steps import aggregation
from fedfisher_core.steps.context import Context
from fedfisher_core.store import Artifact
from tasks.options import computing, step


@step(run_name="{bound.method.name}: {cell.label}")
def aggregate(
    context: Context,
    cell: Cell,
    bound: BoundMethod,
    data: Artifact,
    partition: Artifact,
    clients: dict[int, dict[str, Artifact]],
) -> Artifact:
    """Aggregate the uploads of a cell by one method and measure the result."""
    with computing(context):
        return aggregation.aggregate(context, cell, bound, data, partition, clients)
