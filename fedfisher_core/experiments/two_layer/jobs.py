"""Measuring one seed of the two-layer experiment."""

import time
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from fedfisher_core.jobs import Job, NoInputs
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document
from fedfisher_core.theory.grid import TwoLayerGrid
from fedfisher_core.theory.measuring import SeedErrors, measure_seed

_ERRORS = "errors.json"


@dataclass(frozen=True)
class MeasureSeed(Job[NoInputs]):
    """Measure both curves with one seed; on the processor, as the systems that are solved are too small for a GPU.

    Args:
        grid: what is measured.
        seed: one of its seeds.
    """

    grid: TwoLayerGrid
    seed: int

    def step(self, inputs: NoInputs) -> Step:
        """See `Job.step`; other seeds of the grid do not matter."""
        settings = self.grid.model_dump(mode="json", exclude={"seeds"}) | {"seed": self.seed}
        return Step(kind="two_layer", code=source_digest(type(self)), settings=settings | self.numerics.described())

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training error is not finite.
        """
        begun = time.perf_counter()
        measured = measure_seed(self.grid, self.seed)
        return Content(documents={_ERRORS: asdict(measured)}, timings={"seconds": time.perf_counter() - begun})


def read_seed(artifact: Artifact) -> SeedErrors:
    """Read the errors of one seed.

    Args:
        artifact: made by `MeasureSeed`.

    Returns:
        The errors, bit by bit as they were measured.
    """
    return TypeAdapter(SeedErrors).validate_python(read_document(artifact, _ERRORS))
