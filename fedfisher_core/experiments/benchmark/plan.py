"""The plan of a benchmark."""

from dataclasses import dataclass

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.algorithms import algorithm_of
from fedfisher_core.experiments.benchmark.published import published_tables
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.round_checks import largest_load


@dataclass(frozen=True)
class BenchmarkPlan(Plan):
    """The work of a benchmark."""

    settings: BenchmarkSettings
    federations: Federations


def make_plan(settings: BenchmarkSettings) -> BenchmarkPlan:
    """Check everything that can be checked without work, and list the jobs.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    federations = check_federations(settings)
    _require_labels(federations)
    # A wrong name is refused now, not after all training.
    published_tables(PUBLISHED, settings.report.published or ())
    return BenchmarkPlan(
        jobs=tuple(federations.jobs()),
        settings=settings,
        federations=federations,
        largest=largest_load(federations),
    )


def _require_labels(federations: Federations) -> None:
    """Check that no two algorithms of several rounds have the same name; see `algorithm_of`."""
    named: dict[tuple[Setting, int, str], str] = {}
    for federation in federations.all:
        for label in federations.methods_of(federation):
            own = Setting.of_seeded(federation.setting, federations.settings)
            setting, name = algorithm_of(own, label)
            parts = f"method {label!r} with objective {own.objective!r} and server optimiser {own.server_optimiser!r}"
            other = named.setdefault((setting, federation.setting.seed, name), parts)
            if other != parts:
                raise InputError(f"{other} and {parts} are both called {name!r}; allowed: labels that give two names")
