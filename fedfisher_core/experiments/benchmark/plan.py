"""The plan of a benchmark, what a run of it would take, and what it measured, as rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from fedfisher_core.engine.costs import Spent, total, usable_processors
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import JOB_SECONDS
from fedfisher_core.engine.plan import Agenda, Outcome
from fedfisher_core.engine.store import Artifact, Store, read_timings
from fedfisher_core.experiments.benchmark.algorithms import algorithm_of
from fedfisher_core.experiments.benchmark.published import published_tables
from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row, sorted_rows
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.benchmark.summary import Setting, recorded_seconds
from fedfisher_core.experiments.contract import Plan, experiment_of
from fedfisher_core.federation.aggregation import expected_uploads
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.client_measures import mean_score, read_barrier, read_exposure, read_personalisation
from fedfisher_core.federation.federation import Federation, Round
from fedfisher_core.federation.global_models import Result, RoundClients, read_clients, read_result
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.privacy_audit import read_audit
from fedfisher_core.federation.secure import CLIPPED, ROUNDING
from fedfisher_core.federation.server_memory import largest_load
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.federation.training import group_size
from fedfisher_core.methods.shared.fedfisher import LEAST_TRACE
from fedfisher_core.models.evaluation import Measures
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
        *(
            [("clients that are asked again, whose bits are counted in the run", f"{sent.asking:,}")]
            * bool(sent.asking)
        ),
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
        return f"unknown: no seconds are known of {plural(unknown, 'step')}"
    seconds = recorded_seconds(read_rows(earlier / RESULTS, Row))
    return f"{seconds / workers / 60:.1f} for all of it, by the report {earlier}"


def _mean_seconds(store: Store, done: Iterable[Job[Any]]) -> float | None:
    """Average what jobs took whose results the store has; None where it knows it of none."""
    found = (artifact for job in done if (artifact := store.refer(job.kind, job.key)) is not None)
    timings = (read_timings(artifact) for artifact in islice(found, _SAMPLE))
    seconds = [one[JOB_SECONDS] for one in timings if JOB_SECONDS in one]
    return fmean(seconds) if seconds else None


def make_rows(plan: BenchmarkPlan, outcome: Outcome) -> list[Row]:
    """Make one sorted row for every method in every federation that did not fail; it needs the tests of all rounds."""
    federations = plan.federations
    return sorted_rows(
        _row(plan, federation, label, outcome)
        for federation in federations.all
        for label in federations.methods_of(federation)
        if all(name in outcome.artifacts for name in federations.names_of_tests(federation, label))
    )


def failed_settings(plan: BenchmarkPlan, outcome: Outcome) -> dict[tuple[Setting, str], str]:
    """List why methods failed with every seed of a setting, in one line each, by setting and label of the method."""
    federations = plan.federations
    reasons: dict[tuple[Setting, str], str] = {}
    made: set[tuple[Setting, str]] = set()
    for federation in federations.all:
        setting = Setting.of_seeded(federation.setting, plan.settings)
        for label in federations.methods_of(federation):
            tests = federations.names_of_tests(federation, label)
            failures = [outcome.failed[name].reason for name in tests if name in outcome.failed]
            if failures:
                reasons.setdefault((setting, label), failures[0])
            else:
                made.add((setting, label))
    return {one: reason for one, reason in reasons.items() if one not in made}


def _row(plan: BenchmarkPlan, federation: Federation, label: str, outcome: Outcome) -> Row:
    federations = plan.federations
    configured, setting, turns = federations.methods[label], federation.setting, federations.rounds_of(label)
    rounds = [_round(federations, federation, label, round_, outcome) for round_ in turns]
    last, curve = rounds[-1], _curve(rounds)
    audit = federations.audit(federation)
    # Rows are made even where the audit failed.
    audited = None if audit is None else outcome.artifacts.get(audit.name)
    return Row(
        benchmark=plan.settings.name,
        dataset=setting.dataset,
        model=setting.model,
        partition=setting.scheme,
        alpha=setting.alpha,
        num_clients=setting.clients,
        num_rounds=federations.rounds,
        seed=setting.seed,
        method=label,
        method_settings=configured.described(),
        uploads={name: view.value for name, view in configured.method.views.items()},
        accuracy=curve[-1].accuracy,
        loss=curve[-1].loss,
        worst_client_accuracy=curve[-1].worst_client_accuracy,
        worst_class_accuracy=curve[-1].worst_class_accuracy,
        client_train_seconds=sum(one.clients.training.seconds for one in rounds),
        client_statistics_seconds={
            one.name: sum(each.clients.statistics[one.name].seconds for each in rounds)
            for one in configured.method.uploads
            if one.name in last.clients.statistics
        },
        client_encode_seconds=sum(one.clients.encoding.seconds for one in rounds),
        server_seconds=sum(one.server.seconds for one in rounds),
        client_processor_seconds=total(one.clients.spent for one in rounds).processor_seconds,
        server_processor_seconds=total(one.server for one in rounds).processor_seconds,
        peak_memory_bytes=max(one.peak_memory_bytes for one in rounds),
        uses_validation=any(one.result.uses_validation for one in rounds),
        reference=not configured.method.ranked,
        failed_clients=sorted({client for one in rounds for client in one.clients.failed}),
        artifact=last.artifact.key,
        epsilon=last.clients.epsilon,
        audited_epsilon=None if audited is None else read_audit(audited).lower,
        track=plan.settings.track,
        training=_training(plan, federation),
        train_size=plan.settings.data.examples,
        held_out=plan.settings.data.held_out,
        shift=setting.shift.kind if setting.shift else None,
        shift_strength=setting.shift.strength if setting.shift else None,
        shift_classes=setting.shift.classes,
        objective=setting.objective,
        server_optimiser=setting.server_optimiser,
        cohort=plan.settings.rounds.cohort,
        curve=curve if len(curve) > 1 else [],
        num_networks=last.result.networks,
        upload_bits=curve[-1].upload_bits,
        upload_bits_formula=sum(one.result.traffic.upload_bits_formula for one in rounds),
        download_bits=curve[-1].download_bits,
        start_sent=rounds[0].result.traffic.start_sent,
        unseen_clients=len(federation.unseen) or None,
        canary_times=canary.times if (canary := plan.settings.measures.canary) else None,
        fisher=federation.fisher.estimate if any(one.approximation for one in configured.method.uploads) else None,
        fisher_scatter=last.clients.scatter,
        least_trace=min(
            (one.result.details[LEAST_TRACE] for one in rounds if LEAST_TRACE in one.result.details), default=None
        ),
        secure_rounding=max(
            (one.result.details[ROUNDING] for one in rounds if ROUNDING in one.result.details), default=None
        ),
        secure_clipped=max(
            (one.result.details[CLIPPED] for one in rounds if CLIPPED in one.result.details), default=None
        ),
        **_measures(federations, federation, label, outcome),
    )


def _measures(
    federations: Federations, federation: Federation, label: str, outcome: Outcome
) -> dict[str, float | None]:
    """Read what was measured on clients' own examples; a row does without what failed."""
    found: dict[str, float | None] = {}
    measuring = federations.measuring(federation, label)
    barrier = measuring.barrier
    if barrier is not None and barrier.name in outcome.artifacts:
        score = read_barrier(outcome.artifacts[barrier.name])
        found |= {"barrier_accuracy": score.accuracy, "barrier_loss": score.loss}
    exposing = measuring.exposure
    if exposing is not None and exposing.name in outcome.artifacts:
        exposed = read_exposure(outcome.artifacts[exposing.name])
        found |= {"canary_exposure": exposed.shared, "canary_client_exposure": exposed.own}
    names = [job.name for job in measuring.personalisations]
    # A mean over those unseen clients that did not fail would favour clients that are easy to train.
    if names and all(name in outcome.artifacts for name in names):
        clients = [read_personalisation(outcome.artifacts[name]) for name in names]
        before, after = mean_score([one.shared for one in clients]), mean_score([one.own for one in clients])
        found |= {"unseen_accuracy": before.accuracy, "unseen_loss": before.loss}
        found |= {"personalised_accuracy": after.accuracy, "personalised_loss": after.loss}
    return found


@dataclass(frozen=True)
class _Round:
    """What one round of a method left in the store.

    Args:
        measures: of its global model, on the test examples.
    """

    artifact: Artifact
    result: Result
    measures: Measures
    server: Spent
    peak_memory_bytes: int
    clients: RoundClients


def _round(federations: Federations, federation: Federation, label: str, round_: Round, outcome: Outcome) -> _Round:
    artifact = outcome.artifacts[federations.aggregation(federation, label, round_).name]
    timings = read_timings(artifact)
    return _Round(
        artifact=artifact,
        result=read_result(artifact),
        measures=read_measures(outcome.artifacts[federations.testing(federation, label, round_).name]),
        server=Spent.of(timings),
        peak_memory_bytes=int(timings["peak_memory_bytes"]),
        clients=read_clients(artifact),
    )


def _curve(rounds: Sequence[_Round]) -> list[RoundPoint]:
    """Follow a method from round to round; bits add up, and every client gets the last global model once."""
    points, upload_bits, start_bits = [], 0, 0
    for number, one in enumerate(rounds, start=1):
        measures, traffic = one.measures, one.result.traffic
        upload_bits += traffic.upload_bits
        start_bits += traffic.start_bits
        points.append(
            RoundPoint(
                round=number,
                accuracy=measures.accuracy,
                loss=measures.loss,
                worst_client_accuracy=measures.worst_client_accuracy,
                worst_class_accuracy=measures.worst_class_accuracy,
                upload_bits=upload_bits,
                download_bits=start_bits + traffic.download_bits - traffic.start_bits,
            )
        )
    return points


def _training(plan: BenchmarkPlan, federation: Federation) -> dict[str, Any]:
    """Describe how the clients of one setting trained, and in groups of how many where they trained together."""
    together = group_size(federation)
    return {
        **federation.train.model_dump(mode="json", exclude={"objective", "together"}),
        **({} if together is None else {"together": together}),
        **federation.objective.described(),
        **({"augment": "never"} if plan.settings.data.augment == "never" else {}),
    }
