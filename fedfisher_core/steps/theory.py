"""Measuring one seed of the two-layer experiment."""

import time
from dataclasses import asdict, dataclass

import torch

from fedfisher_core.settings import WorkSettings
from fedfisher_core.steps.context import WorkContext
from fedfisher_core.store import Artifact, Content, Step, read_document
from fedfisher_core.theory import experiment
from fedfisher_core.theory.experiment import Errors, SeedErrors
from fedfisher_core.theory.settings import TwoLayerBenchmark

_ERRORS = "errors.json"


@dataclass(frozen=True)
class TwoLayerContext(WorkContext):
    """The settings of the two-layer experiment, and what follows from them.

    Args:
        settings: the experiment.
    """

    settings: TwoLayerBenchmark

    @property
    def run(self) -> WorkSettings:
        """How the work is carried out."""
        return self.settings.run

    @property
    def device(self) -> torch.device:
        """The processor: the systems that are solved are too small for a GPU."""
        return torch.device("cpu")


def measure_seed(context: TwoLayerContext, seed: int) -> Artifact:
    """Measure both curves with one seed.

    Args:
        context: the experiment.
        seed: one of its seeds.

    Returns:
        The errors.

    Raises:
        DivergedClientError: names the client whose training error is not finite.
    """
    settings = context.settings.two_layer
    step = Step(
        kind="two_layer",
        version=1,
        settings={**settings.model_dump(mode="json", exclude={"seeds"}), "seed": seed, **context.numerics},
    )
    found = context.store.find(step)
    if found is not None:
        return found
    begun = time.perf_counter()
    measured = experiment.measure_seed(settings, seed)
    seconds = time.perf_counter() - begun
    return context.store.write(step, Content(documents={_ERRORS: asdict(measured)}, timings={"seconds": seconds}))


def read_seed(artifact: Artifact) -> SeedErrors:
    """Read the errors of one seed.

    Args:
        artifact: made by `measure_seed`.

    Returns:
        The errors, bit by bit as they were measured.
    """
    document = read_document(artifact, _ERRORS)
    return SeedErrors(
        widths=tuple(Errors(**errors) for errors in document["widths"]),
        steps=tuple(Errors(**errors) for errors in document["steps"]),
    )
