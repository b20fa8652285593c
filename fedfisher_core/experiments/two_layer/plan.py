"""The plan of the two-layer experiment, and its one kind of job."""

import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import TypeAdapter

from fedfisher_core.engine.job import Job, NoInputs, Numerics
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact, Content, read_document, understood
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.experiments.two_layer.rows import TwoLayerRow, rows_of
from fedfisher_core.experiments.two_layer.settings import TwoLayerGrid, TwoLayerSettings
from fedfisher_core.experiments.two_layer.theory import SeedErrors, measure_seed

_ERRORS = "errors.json"


@dataclass(frozen=True)
class MeasureSeed(Job[NoInputs]):
    """Measure both curves with one seed; on the CPU, as the linear systems are too small for a GPU."""

    kind: ClassVar[str] = "two_layer"
    version: ClassVar[int] = 1

    grid: TwoLayerGrid
    seed: int

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; other seeds of the grid do not matter."""
        settings = self.grid.model_dump(mode="json", exclude={"seeds"})
        return settings | {"seed": self.seed} | self.numerics.described()

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training error is not finite.
        """
        begun = time.perf_counter()
        measured = measure_seed(self.grid, self.seed)
        return Content(documents={_ERRORS: asdict(measured)}, timings={"seconds": time.perf_counter() - begun})


@understood
def read_seed(artifact: Artifact) -> SeedErrors:
    """Read the errors that a `MeasureSeed` measured, to the last bit."""
    return TypeAdapter(SeedErrors).validate_python(read_document(artifact, _ERRORS))


@dataclass(frozen=True)
class TwoLayerPlan(Plan):
    """The work of the two-layer experiment: one job a seed."""

    settings: TwoLayerSettings
    seeds: tuple[MeasureSeed, ...]


def make_plan(settings: TwoLayerSettings) -> TwoLayerPlan:
    """List the jobs."""
    grid, numerics = settings.two_layer, Numerics.of(settings.run)
    seeds = tuple(
        MeasureSeed(grid, seed, name=f"two-layer networks: seed={seed}", numerics=numerics) for seed in grid.seeds
    )
    return TwoLayerPlan(jobs=seeds, settings=settings, seeds=seeds)


def make_rows(plan: TwoLayerPlan, outcome: Outcome) -> list[TwoLayerRow]:
    """Lay out the errors of all seeds that did not fail."""
    settings = plan.settings
    found = {job.seed: outcome.artifacts[job.name] for job in plan.seeds if job.name in outcome.artifacts}
    return [
        row
        for seed, artifact in found.items()
        for row in rows_of(settings.name, settings.two_layer, seed, read_seed(artifact), artifact.key)
    ]
