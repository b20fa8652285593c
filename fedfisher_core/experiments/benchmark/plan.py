"""The plan of a benchmark."""

from dataclasses import dataclass

from fedfisher_core.experiments.benchmark.published import published_tables
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import Federations, stages_of


@dataclass(frozen=True)
class BenchmarkPlan(Plan):
    """The work of a benchmark.

    Args:
        settings: the benchmark.
        federations: what is trained and aggregated.
    """

    settings: BenchmarkSettings
    federations: Federations


def make_plan(settings: BenchmarkSettings) -> BenchmarkPlan:
    """Check everything that can be checked without work.

    Args:
        settings: the benchmark.

    Returns:
        Its plan.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    federations = check_federations(settings)
    # Now, and not when all is trained.
    published_tables(PUBLISHED, settings.report.published or ())
    jobs = tuple(federations.jobs())
    return BenchmarkPlan(
        jobs=jobs,
        stages=stages_of(jobs),
        settings=settings,
        federations=federations,
    )
