"""The fan-out over clients and the fan-in to methods, for all cells of a benchmark in one pool."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedfisher_core.errors import DivergedClientError
from fedfisher_core.reporting.rows import Row
from fedfisher_core.settings import Cell
from fedfisher_core.steps.clients import POOLED
from fedfisher_core.steps.partitions import label_counts
from fedfisher_core.steps.rows import make_row
from fedfisher_core.store import Artifact
from flows.plan import Plan
from flows.pool import Pool, task_runner
from flows.progress import Progress
from tasks.aggregation import aggregate
from tasks.clients import compute_statistics, train_client
from tasks.data import decode_data, split_data


class Work:
    """Does a plan's work and holds what it made.

    Args:
        plan: what is to be done.
        pool: runs the tasks.
    """

    def __init__(self, plan: Plan, pool: Pool) -> None:
        self.plan = plan
        self.data = {name: decode_data(plan.context, name) for name in plan.context.settings.data.dataset}
        self.partitions: dict[Cell, Artifact] = {}
        self.statistics: dict[Cell, dict[int, dict[str, Artifact]]] = {cell: {} for cell in plan.cells}
        self.failed: dict[Cell, list[int]] = {cell: [] for cell in plan.cells}
        self.aggregates: dict[Cell, dict[str, Artifact]] = {cell: {} for cell in plan.cells}
        self._pool = pool

    def split(self) -> None:
        """Split the data over the clients of every cell."""
        for cell in self.plan.cells:

            def keep(partition: Artifact, cell: Cell = cell) -> None:
                self.partitions[cell] = partition

            self._pool.submit(split_data, then=keep, cell=cell, data=self.data[cell.dataset])
        self._pool.run()

    def train(self) -> None:
        """Train all clients and compute what they upload.

        Raises:
            DivergedClientError: a client diverged and too few are left.
        """
        self._train(when_complete=lambda cell: None)

    def train_and_aggregate(self) -> None:
        """Train all clients, and aggregate each cell as soon as its clients are done.

        Raises:
            DivergedClientError: a client diverged and too few are left.
        """
        self._train(when_complete=self._aggregate)

    def rows(self) -> list[Row]:
        """Make one row for every cell and method."""
        return [
            make_row(
                self.plan.context,
                cell,
                label,
                bound,
                self.statistics[cell],
                () if bound.method.pooled else sorted(self.failed[cell]),
                self.aggregates[cell][label],
            )
            for cell in self.plan.cells
            for label, bound in self.plan.methods_of(cell).items()
        ]

    def client_artifacts(self) -> list[Artifact]:
        """List the partitions, the trained clients and their statistics, each once."""
        uploads = [
            artifact
            for clients in self.statistics.values()
            for statistics in clients.values()
            for artifact in statistics.values()
        ]
        return list(dict.fromkeys([*self.partitions.values(), *uploads]))

    def aggregate_artifacts(self) -> list[Artifact]:
        """List the results of all methods, each once."""
        return list(dict.fromkeys(one for results in self.aggregates.values() for one in results.values()))

    def _train(self, when_complete: Callable[[Cell], None]) -> None:
        clients = [(cell, client) for cell in self.plan.cells for client in self.plan.clients(cell)]
        # The largest first, so that no long training is left for the end, when most workers have nothing to do.
        for cell, client in sorted(clients, key=lambda one: -self._size(*one)):
            self._train_client(cell, client, when_complete)
        self._pool.run()

    def _size(self, cell: Cell, client: int) -> int:
        counts = label_counts(self.partitions[cell])
        return sum(map(sum, counts)) if client == POOLED else sum(counts[client])

    def _train_client(self, cell: Cell, client: int, when_complete: Callable[[Cell], None]) -> None:
        place = {
            "cell": cell,
            "data": self.data[cell.dataset],
            "partition": self.partitions[cell],
            "client": client,
            "kinds": self.plan.kinds(cell, client),
        }

        def trained(artifact: Artifact) -> None:
            self._pool.submit(compute_statistics, then=computed, otherwise=failed, **place, trained=artifact)

        def computed(artifacts: dict[str, Artifact]) -> None:
            self.statistics[cell][client] = artifacts
            settled()

        def failed(error: Exception) -> None:
            self._accept(error, cell, client)
            settled()

        def settled() -> None:
            if len(self.statistics[cell]) + len(self.failed[cell]) == len(self.plan.clients(cell)):
                when_complete(cell)

        self._pool.submit(train_client, then=trained, otherwise=failed, **place)

    def _accept(self, error: Exception, cell: Cell, client: int) -> None:
        """Go on without a client if it diverged and the settings allow it."""
        allowed = self.plan.context.settings.run.min_clients
        left = cell.clients - len(self.failed[cell]) - 1
        if not isinstance(error, DivergedClientError) or client == POOLED:
            raise error
        if allowed is None or left < allowed:
            least = "all clients" if allowed is None else f"{allowed} clients"
            raise DivergedClientError(f"{error}; run.min_clients asks for {least}, {left} are left") from error
        self.failed[cell].append(client)

    def _aggregate(self, cell: Cell) -> None:
        for label, bound in self.plan.methods_of(cell).items():
            members = {
                client: artifacts
                for client, artifacts in self.statistics[cell].items()
                if (client == POOLED) == bound.method.pooled
            }

            def keep(result: Artifact, label: str = label) -> None:
                self.aggregates[cell][label] = result

            self._pool.submit(
                aggregate,
                then=keep,
                cell=cell,
                bound=bound,
                data=self.data[cell.dataset],
                partition=self.partitions[cell],
                clients=members,
            )


@contextmanager
def working(plan: Plan) -> Iterator[Work]:
    """Start the workers and the progress display, and split the data.

    Args:
        plan: what is to be done.

    Yields:
        The work, ready for its clients.
    """
    total = sum(1 + 2 * len(plan.clients(cell)) + len(plan.methods_of(cell)) for cell in plan.cells)
    with (
        Progress(name=plan.context.settings.name, total=total) as progress,
        task_runner(plan.context) as runner,
    ):
        work = Work(plan, Pool(plan.context, runner, progress))
        work.split()
        yield work
