"""Whole experiments without orchestration: their jobs, done one after another in this thread."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfisher_core.evaluation.measures import Measures
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan, make_plan
from fedfisher_core.experiments.benchmark.results import make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.jobs import graph_of, needed_for
from fedfisher_core.store import Artifact, open_store
from fedfisher_core.walk import Outcome, walk_here
from tests import tiny


@dataclass(frozen=True)
class Walked:
    """A benchmark whose work is done.

    Args:
        plan: what was done.
        outcome: of its jobs.
    """

    plan: BenchmarkPlan
    outcome: Outcome

    @property
    def place(self) -> Place:
        """The only federation."""
        (place,) = self.plan.federations.places
        return place

    @property
    def rows(self) -> dict[str, Row]:
        """The rows of the only federation by method."""
        return {row.method: row for row in make_rows(self.plan, self.outcome)}

    @property
    def data(self) -> Artifact:
        """The decoded data set."""
        return self.outcome.artifacts[self.plan.federations.data(self.place).name]

    @property
    def partition(self) -> Artifact:
        """Who holds what."""
        return self.outcome.artifacts[self.plan.federations.partition(self.place).name]

    def client(self, client: int, method: str) -> dict[str, Artifact]:
        """What a client has ready to send to a method, by the statistic's name."""
        federations = self.plan.federations
        names = federations.names_of_statistics(self.place, client, federations.methods[method])
        return {statistic: self.outcome.artifacts[name] for statistic, name in names.items()}

    def aggregate(self, method: str) -> Artifact:
        """What a method made."""
        return self.outcome.artifacts[self.plan.federations.aggregation(self.place, method).name]

    def measures(self, method: str) -> Measures:
        """How a method's global model does on the test examples."""
        return read_measures(self.outcome.artifacts[self.plan.federations.names_of_tests(self.place, method)[-1]])


def walk(settings: BenchmarkSettings, stage: str | None = None) -> Walked:
    """Plan a benchmark and do its work, or what one stage of it needs."""
    plan = make_plan(settings)
    graph = graph_of(plan.jobs)
    if stage is not None:
        graph = {job.name: job for job in needed_for(graph, plan.stages[stage])}
    return Walked(plan, walk_here(graph, open_store(settings.run.store)))


def walk_tiny(folder: Path, methods: Mapping[str, Mapping[str, Any]], **changes: Any) -> Walked:
    """Do the work of a tiny benchmark that writes below a folder."""
    return walk(tiny.tiny_settings(folder, methods=dict(methods), **changes))
