"""Tasks of one client."""

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.settings import Cell
from fedfisher_core.steps import clients
from fedfisher_core.steps.context import Context
from fedfisher_core.store import Artifact
from tasks.options import computing, step


@step(run_name="train client {client}: {cell.label}")
def train_client(
    context: Context,
    cell: Cell,
    data: Artifact,
    partition: Artifact,
    client: int,
    kinds: tuple[type[Statistic], ...],
) -> Artifact:
    """Train one client."""
    with computing(context):
        return clients.train_client(context, cell, data, partition, client, kinds)


@step(run_name="statistics of client {client}: {cell.label}")
def compute_statistics(
    context: Context,
    cell: Cell,
    data: Artifact,
    partition: Artifact,
    client: int,
    trained: Artifact,
    kinds: tuple[type[Statistic], ...],
) -> dict[str, Artifact]:
    """Compute what a client uploads."""
    with computing(context):
        return clients.compute_statistics(context, cell, data, partition, client, trained, kinds)
