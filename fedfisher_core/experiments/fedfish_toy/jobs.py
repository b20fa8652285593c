"""Measuring one overlap of the toy regression with one seed."""

import time
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from fedfisher_core.jobs import Job, NoInputs
from fedfisher_core.regression.grid import RegressionGrid
from fedfisher_core.regression.measuring import Measured, measure_overlap
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document

_MEASURED = "measured.json"


@dataclass(frozen=True)
class MeasureOverlap(Job[NoInputs]):
    """Train the clients of one federation and merge them; on the processor, as the networks are small.

    Args:
        grid: what is measured.
        overlap: one of its overlaps.
        seed: one of its seeds.
    """

    grid: RegressionGrid
    overlap: float
    seed: int

    def step(self, inputs: NoInputs) -> Step:
        """See `Job.step`; other overlaps and seeds of the grid do not matter."""
        settings = self.grid.model_dump(mode="json", exclude={"overlaps", "seeds"})
        settings |= {"overlap": self.overlap, "seed": self.seed}
        return Step(kind="fedfish_toy", code=source_digest(type(self)), settings=settings | self.numerics.described())

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose loss or weights are not finite.
        """
        begun = time.perf_counter()
        measured = measure_overlap(self.grid, self.overlap, self.seed)
        return Content(documents={_MEASURED: asdict(measured)}, timings={"seconds": time.perf_counter() - begun})


def read_measured(artifact: Artifact) -> Measured:
    """Read what was measured of one federation.

    Args:
        artifact: made by `MeasureOverlap`.

    Returns:
        The errors and curves, bit by bit as they were measured.
    """
    return TypeAdapter(Measured).validate_python(read_document(artifact, _MEASURED))
