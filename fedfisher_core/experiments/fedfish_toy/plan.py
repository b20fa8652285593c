"""The plan of the toy regression."""

from dataclasses import dataclass

from fedfisher_core.experiments.contract import Plan
from fedfisher_core.experiments.fedfish_toy.jobs import MeasureOverlap, read_measured
from fedfisher_core.experiments.fedfish_toy.rows import FedFishToyRow, rows_of
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings
from fedfisher_core.jobs import Numerics
from fedfisher_core.walk import Outcome


@dataclass(frozen=True)
class FedFishToyPlan(Plan):
    """The work of the toy regression.

    Args:
        settings: the experiment.
        federations: the jobs, one for each overlap and seed.
    """

    settings: FedFishToySettings
    federations: tuple[MeasureOverlap, ...]


def make_plan(settings: FedFishToySettings) -> FedFishToyPlan:
    """List the jobs.

    Args:
        settings: the experiment.

    Returns:
        Its plan.
    """
    grid, numerics = settings.toy, Numerics.of(settings.run)
    federations = tuple(
        MeasureOverlap(grid, overlap, seed, name=f"toy regression: overlap={overlap!r}, seed={seed}", numerics=numerics)
        for overlap in grid.overlaps
        for seed in grid.seeds
    )
    return FedFishToyPlan(
        jobs=federations,
        stages={"federations": [job.name for job in federations]},
        settings=settings,
        federations=federations,
    )


def make_rows(plan: FedFishToyPlan, outcome: Outcome) -> list[FedFishToyRow]:
    """Lay out the errors of all federations that did not fail.

    Args:
        plan: the experiment.
        outcome: of its jobs.

    Returns:
        The rows.
    """
    settings = plan.settings
    found = [(job, outcome.artifacts[job.name]) for job in plan.federations if job.name in outcome.artifacts]
    return [
        row
        for job, artifact in found
        for row in rows_of(settings.name, settings.toy, job.overlap, job.seed, read_measured(artifact), artifact.key)
    ]
