"""The plan of a benchmark, and what a run of it would compute, send and take."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from fedfisher_core.engine.costs import usable_processors
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.plan import Agenda
from fedfisher_core.engine.store import Store, read_timings
from fedfisher_core.experiments.benchmark.algorithms import algorithm_of
from fedfisher_core.experiments.benchmark.published import published_tables
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.benchmark.summary import Setting, recorded_seconds
from fedfisher_core.experiments.contract import Plan, experiment_of
from fedfisher_core.federation.aggregation import expected_uploads
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.round_checks import largest_load
from fedfisher_core.reporting.formats import Table, megabits, plural
from fedfisher_core.reporting.rows import RESULTS, read_rows
from fedfisher_core.settings import ExperimentSettings

_SAMPLE = 20
"""Finished jobs of a step whose seconds are averaged."""


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


def explain(settings: ExperimentSettings, agenda: Agenda, store: Store, *, earlier: Path | None) -> list[Table]:
    """Count the jobs of an experiment by step, its uploads, and the minutes that it is expected to take.

    Args:
        earlier: folder of an earlier report of it; None where there is none.
    """
    jobs = {job.key: job for job in agenda.graph.values()}
    total = Counter(job.action for job in jobs.values())
    left = Counter(job.action for job in agenda.missing)
    title = f"{settings.name}: {plural(len(jobs), 'job')}, of which a run would compute {left.total():,}"
    steps = [(action, f"{count:,}", f"{left[action]:,}") for action, count in total.items()]
    sent = expected_uploads(agenda.graph.values())
    expected = [
        ("clients' uploads", f"{sent.count:,}"),
        ("megabits of all uploads, at most", megabits(sent.bits)),
        ("megabits of the largest upload, at most", megabits(sent.largest)),
        *([("parts in secure sums, whose bits are counted in the run", f"{sent.uncounted:,}")] * bool(sent.uncounted)),
        ("minutes that a run takes, about", _minutes(settings, agenda, store, earlier)),
    ]
    return [
        Table(title, ("step", "jobs", "to compute"), steps),
        Table("what to expect", ("", "a run"), expected, words=2),
    ]


def _minutes(settings: ExperimentSettings, agenda: Agenda, store: Store, earlier: Path | None) -> str:
    """Estimate the minutes of what is left, by finished jobs in the store, or those of all by an earlier report."""
    workers = settings.run.workers or usable_processors()
    left = Counter(job.action for job in agenda.missing)
    missing = {job.key for job in agenda.missing}
    done = [job for job in agenda.graph.values() if job.key not in missing]
    means = {action: _mean_seconds(store, (job for job in done if job.action == action)) for action in left}
    unknown = list(means.values()).count(None)
    if not unknown:
        return f"{sum(left[action] * (means[action] or 0.0) for action in left) / workers / 60:.1f}"
    if earlier is None or experiment_of(settings).row is not Row:
        return f"unknown: nothing is finished of {plural(unknown, 'step')}"
    seconds = recorded_seconds(read_rows(earlier / RESULTS, Row))
    return f"{seconds / workers / 60:.1f} for all of it, by the report {earlier}"


def _mean_seconds(store: Store, done: Iterable[Job[Any]]) -> float | None:
    """Average what jobs took whose results the store has; None where it has none."""
    found = (artifact for job in done if (artifact := store.refer(job.kind, job.key)) is not None)
    seconds = [read_timings(artifact).get("seconds", 0.0) for artifact in islice(found, _SAMPLE)]
    return fmean(seconds) if seconds else None
