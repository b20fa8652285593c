"""The plan of the toy regression, and its one kind of job."""

import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from pydantic import TypeAdapter

from fedfisher_core.engine.job import Job, NoInputs, Numerics
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact, Content, read_document, understood
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.experiments.fedfish_toy.regression import Measured, measure_overlap
from fedfisher_core.experiments.fedfish_toy.rows import FedFishToyRow, rows_of
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings, RegressionGrid

_MEASURED = "measured.json"


@dataclass(frozen=True)
class MeasureOverlap(Job[NoInputs]):
    """Train the clients of one federation and merge them; on the CPU, as the networks are small."""

    kind: ClassVar[str] = "fedfish_toy"
    version: ClassVar[int] = 1

    grid: RegressionGrid
    overlap: float
    seed: int

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; other overlaps and seeds of the grid do not matter."""
        settings = self.grid.model_dump(mode="json", exclude={"overlaps", "seeds"})
        return settings | {"overlap": self.overlap, "seed": self.seed} | self.numerics.described()

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose loss or weights are not finite.
        """
        begun = time.perf_counter()
        measured = measure_overlap(self.grid, self.overlap, self.seed)
        return Content(documents={_MEASURED: asdict(measured)}, timings={"seconds": time.perf_counter() - begun})


@understood
def read_measured(artifact: Artifact) -> Measured:
    """Read what a `MeasureOverlap` measured, to the last bit."""
    return TypeAdapter(Measured).validate_python(read_document(artifact, _MEASURED))


@dataclass(frozen=True)
class FedFishToyPlan(Plan):
    """The work of the toy regression: one job for each overlap and seed."""

    settings: FedFishToySettings
    federations: tuple[MeasureOverlap, ...]


def make_plan(settings: FedFishToySettings) -> FedFishToyPlan:
    """List the jobs."""
    grid, numerics = settings.toy, Numerics.of(settings.run)
    federations = tuple(
        MeasureOverlap(grid, overlap, seed, name=f"toy regression: overlap={overlap!r}, seed={seed}", numerics=numerics)
        for overlap in grid.overlaps
        for seed in grid.seeds
    )
    return FedFishToyPlan(jobs=federations, settings=settings, federations=federations)


def make_rows(plan: FedFishToyPlan, outcome: Outcome) -> list[FedFishToyRow]:
    """Lay out the errors of all federations that did not fail."""
    settings = plan.settings
    found = [(job, outcome.artifacts[job.name]) for job in plan.federations if job.name in outcome.artifacts]
    return [
        row
        for job, artifact in found
        for row in rows_of(settings.name, settings.toy, job.overlap, job.seed, read_measured(artifact), artifact.key)
    ]
