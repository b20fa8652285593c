"""The plan of a benchmark."""

from dataclasses import dataclass

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
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
    for table in settings.report.published or ():
        parse_published(table)
    jobs = tuple(federations.jobs())
    return BenchmarkPlan(
        jobs=jobs,
        stages=stages_of(jobs),
        settings=settings,
        federations=federations,
    )


def parse_published(text: str) -> tuple[str, str]:
    """Split one table of the setting report.published.

    Args:
        text: 'SOURCE, TABLE'.

    Returns:
        The source and the table.

    Raises:
        InputError: there is no comma.
    """
    source, comma, table = text.partition(",")
    if not comma:
        raise InputError(f"report.published={text!r} must have the form 'SOURCE, TABLE'")
    return source.strip(), table.strip()
