"""The plan of a benchmark."""

from dataclasses import dataclass

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.algorithms import algorithm_of
from fedfisher_core.experiments.benchmark.published import published_tables
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import Federations, stages_of
from fedfisher_core.federation.server_memory import largest_load


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
    _require_labels(federations)
    # Now, and not when all is trained.
    published_tables(PUBLISHED, settings.report.published or ())
    jobs = tuple(federations.jobs())
    return BenchmarkPlan(
        jobs=jobs,
        stages=stages_of(jobs),
        settings=settings,
        federations=federations,
        largest=largest_load(federations),
    )


def _require_labels(federations: Federations) -> None:
    """Check that no two algorithms of several rounds have one name; see `algorithm_of`."""
    named: dict[tuple[Setting, int, str], str] = {}
    for place in federations.places:
        for label in federations.methods_of(place):
            own = Setting.of_cell(place.cell, federations.settings)
            setting, name = algorithm_of(own, label)
            parts = f"method {label!r} with objective {own.objective!r} and server optimiser {own.server_optimiser!r}"
            other = named.setdefault((setting, place.cell.seed, name), parts)
            if other != parts:
                raise InputError(f"{other} and {parts} are both called {name!r}; allowed: labels that tell them apart")
