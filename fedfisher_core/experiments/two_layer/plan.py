"""The plan of the two-layer experiment."""

from dataclasses import dataclass

from fedfisher_core.experiments.contract import Plan
from fedfisher_core.experiments.two_layer.jobs import MeasureSeed, read_seed
from fedfisher_core.experiments.two_layer.rows import TwoLayerRow, rows_of
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.jobs import Numerics
from fedfisher_core.walk import Outcome


@dataclass(frozen=True)
class TwoLayerPlan(Plan):
    """The work of the two-layer experiment.

    Args:
        settings: the experiment.
        seeds: the jobs, one a seed.
    """

    settings: TwoLayerSettings
    seeds: tuple[MeasureSeed, ...]


def make_plan(settings: TwoLayerSettings) -> TwoLayerPlan:
    """List the jobs.

    Args:
        settings: the experiment.

    Returns:
        Its plan.
    """
    grid, numerics = settings.two_layer, Numerics.of(settings.run)
    seeds = tuple(
        MeasureSeed(grid, seed, name=f"two-layer networks: seed={seed}", numerics=numerics) for seed in grid.seeds
    )
    return TwoLayerPlan(jobs=seeds, stages={"seeds": [job.name for job in seeds]}, settings=settings, seeds=seeds)


def make_rows(plan: TwoLayerPlan, outcome: Outcome) -> list[TwoLayerRow]:
    """Lay out the errors of all seeds that did not fail.

    Args:
        plan: the experiment.
        outcome: of its jobs.

    Returns:
        The rows.
    """
    settings = plan.settings
    found = {job.seed: outcome.artifacts[job.name] for job in plan.seeds if job.name in outcome.artifacts}
    return [
        row
        for seed, artifact in found.items()
        for row in rows_of(settings.name, settings.two_layer, seed, read_seed(artifact), artifact.key)
    ]
