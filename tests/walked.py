"""Whole experiments without orchestration: their jobs, done one after another in this thread."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import divergence, execute
from fedfisher_core.engine.plan import Outcome, in_order
from fedfisher_core.engine.store import Artifact, Store, open_store
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan, make_plan, make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.models.evaluation import Measures
from tests import tiny


@dataclass(frozen=True)
class Walked:
    """A benchmark whose work is done.

    Args:
        plan: what was done.
        outcome: of its jobs.
        store: keeps the results.
    """

    plan: BenchmarkPlan
    outcome: Outcome
    store: Store

    def made(self, job: Job[Any]) -> Artifact:
        """What any job of the plan has made."""
        artifact = self.store.find(job.recipe)
        assert artifact is not None, job.name
        return artifact

    def divergence(self, job: Job[Any]) -> str | None:
        """Why the client of a job diverged; None where it did not."""
        error = divergence([self.made(job)])
        return None if error is None else str(error)

    @property
    def federation(self) -> Federation:
        """The only federation."""
        (federation,) = self.plan.federations.all
        return federation

    @property
    def rows(self) -> dict[str, Row]:
        """The rows of the only federation by method."""
        return {row.method: row for row in make_rows(self.plan, self.outcome)}

    @property
    def data(self) -> Artifact:
        """The decoded data set."""
        return self.made(self.plan.federations.data(self.federation))

    @property
    def partition(self) -> Artifact:
        """Who holds what."""
        return self.made(self.plan.federations.partition(self.federation))

    def client(self, client: int, method: str) -> dict[str, Artifact]:
        """What a client has ready to send to a method, by the statistic's name."""
        federations = self.plan.federations
        jobs = federations.uploaded(self.federation, client, federations.methods[method])
        return {statistic: self.made(job) for statistic, job in jobs.items()}

    def aggregate(self, method: str) -> Artifact:
        """What a method made."""
        return self.made(self.plan.federations.aggregation(self.federation, method))

    def measures(self, method: str) -> Measures:
        """How a method's global model does on the test examples."""
        return read_measures(self.outcome.artifacts[self.plan.federations.names_of_tests(self.federation, method)[-1]])


def walk(settings: BenchmarkSettings) -> Walked:
    """Plan a benchmark and do its work."""
    plan, store = make_plan(settings), open_store(settings.run.store)
    return Walked(plan, execute(plan.jobs, store), store)


def walk_clients(settings: BenchmarkSettings) -> Walked:
    """Plan a benchmark and do the work that comes before any server's."""
    plan, store = make_plan(settings), open_store(settings.run.store)
    jobs = [job for job in in_order(plan.jobs) if job.kind not in ("aggregates", "measures")]
    return Walked(plan, execute(jobs, store), store)


def walk_tiny(folder: Path, methods: Mapping[str, Mapping[str, Any]], **changes: Any) -> Walked:
    """Do the work of a tiny benchmark that writes below a folder."""
    return walk(tiny.tiny_settings(folder, methods=dict(methods), **changes))
