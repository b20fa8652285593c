"""What a benchmark measured, as rows."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.objectives.binding import bind_objective
from fedfisher_core.evaluation.measures import Measures
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.experiments.benchmark.rows import RoundPoint, Row, sorted_rows
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.federation.auditing import read_audit
from fedfisher_core.federation.client_measures import mean_score, read_barrier, read_personalisation
from fedfisher_core.federation.federation import Federations
from fedfisher_core.federation.global_models import Result, read_result
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.private_training import spent_by
from fedfisher_core.federation.statistics import read_scatter
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.federation.training_together import group_size
from fedfisher_core.federation.turns import Turn, aggregation_name, testing_name
from fedfisher_core.fisher.estimators import draws_directions
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.store import Artifact, read_timings
from fedfisher_core.walk import Outcome


def make_rows(plan: BenchmarkPlan, outcome: Outcome) -> list[Row]:
    """Make one row for every method in every federation, where it did not fail; a curve wants the tests of all rounds.

    Args:
        plan: the benchmark.
        outcome: of its jobs.

    Returns:
        The rows, sorted.
    """
    federations = plan.federations
    return sorted_rows(
        _row(plan, place, label, outcome)
        for place in federations.places
        for label in federations.methods_of(place)
        if all(name in outcome.artifacts for name in federations.names_of_tests(place, label))
    )


def failed_cells(plan: BenchmarkPlan, outcome: Outcome) -> dict[tuple[Setting, str], str]:
    """List methods that failed with every seed of a setting.

    Args:
        plan: the benchmark.
        outcome: of its jobs.

    Returns:
        Why, in one line, by setting and label of the method.
    """
    federations = plan.federations
    cells: dict[tuple[Setting, str], str] = {}
    made: set[tuple[Setting, str]] = set()
    for place in federations.places:
        for label in federations.methods_of(place):
            cell, names = (Setting.of_cell(place.cell, plan.settings), label), federations.names_of_tests(place, label)
            reasons = [outcome.failed[name].reason for name in names if name in outcome.failed]
            if reasons:
                cells.setdefault(cell, reasons[0])
            else:
                made.add(cell)
    return {cell: reason for cell, reason in cells.items() if cell not in made}


def _row(plan: BenchmarkPlan, place: Place, label: str, outcome: Outcome) -> Row:
    federations = plan.federations
    bound, cell, turns = federations.methods[label], place.cell, federations.turns(label)
    rounds = [_round(federations, place, label, turn, outcome) for turn in turns]
    last, curve = rounds[-1], _curve(rounds)
    privacy, audit = federations.settings.privacy, federations.audit(place)
    # The rows are there even where the audit failed.
    audited = None if audit is None else outcome.artifacts.get(audit.name)
    return Row(
        benchmark=plan.settings.name,
        dataset=cell.dataset,
        model=cell.model,
        partition=cell.scheme,
        alpha=cell.alpha,
        num_clients=cell.clients,
        num_rounds=federations.rounds,
        seed=cell.seed,
        method=label,
        method_settings=bound.described(),
        uploads={name: view.value for name, view in bound.method.views.items()},
        accuracy=curve[-1].accuracy,
        loss=curve[-1].loss,
        worst_client_accuracy=curve[-1].worst_client_accuracy,
        worst_class_accuracy=curve[-1].worst_class_accuracy,
        client_train_seconds=sum(one.train_seconds for one in rounds),
        client_statistics_seconds={
            name: sum(one.statistics_seconds[name] for one in rounds) for name in last.statistics_seconds
        },
        client_encode_seconds=sum(one.encode_seconds for one in rounds),
        server_seconds=sum(one.timings["seconds"] for one in rounds),
        peak_memory_bytes=int(max(one.timings["peak_memory_bytes"] for one in rounds)),
        uses_validation=any(one.result.uses_validation for one in rounds),
        reference=not bound.method.ranked,
        failed_clients=sorted({client for one in rounds for client in one.failed}),
        artifact=last.artifact.key,
        epsilon=None if privacy is None else max(spent_by(outcome.artifacts[name]) for name in last.trained),
        audited_epsilon=None if audited is None else read_audit(audited).lower,
        track=plan.settings.track,
        training=_training(plan, place),
        train_size=plan.settings.data.examples,
        held_out=plan.settings.data.held_out,
        shift=cell.shift.kind if cell.shift else None,
        shift_strength=cell.shift.strength if cell.shift else None,
        shift_classes=cell.shift.classes,
        objective=cell.objective,
        server_optimiser=cell.server_optimiser,
        cohort=plan.settings.rounds.cohort,
        curve=curve if len(curve) > 1 else [],
        num_networks=last.result.networks,
        upload_bits=curve[-1].upload_bits,
        upload_bits_formula=sum(one.result.traffic.upload_bits_formula for one in rounds),
        download_bits=curve[-1].download_bits,
        start_sent=rounds[0].result.traffic.start_sent,
        unseen_clients=len(place.unseen) or None,
        fisher=place.fisher.estimate if any(one.approximation for one in bound.method.uploads) else None,
        fisher_scatter=last.scatter,
        **_measures(federations, place, label, outcome),
    )


def _measures(federations: Federations, place: Place, label: str, outcome: Outcome) -> dict[str, float]:
    """Read what was measured on clients' own examples; rows are there even where that failed."""
    found: dict[str, float] = {}
    measuring = federations.measuring(place, label)
    barrier = measuring.barrier
    if barrier is not None and barrier.name in outcome.artifacts:
        score = read_barrier(outcome.artifacts[barrier.name])
        found |= {"barrier_accuracy": score.accuracy, "barrier_loss": score.loss}
    names = [job.name for job in measuring.personalisations]
    # A mean over some of the unseen clients would be one over those that are easy to train.
    if names and all(name in outcome.artifacts for name in names):
        clients = [read_personalisation(outcome.artifacts[name]) for name in names]
        before, after = mean_score([one.shared for one in clients]), mean_score([one.own for one in clients])
        found |= {"unseen_accuracy": before.accuracy, "unseen_loss": before.loss}
        found |= {"personalised_accuracy": after.accuracy, "personalised_loss": after.loss}
    return found


@dataclass(frozen=True)
class _Round:
    """What one round of a method left.

    Args:
        artifact: its aggregate.
        result: what is known of it.
        measures: of its global model, on the test examples.
        timings: of the aggregation.
        trained: names of the trainings that it rests on.
        failed: clients that are missing.
        train_seconds: of all clients; 0 for a method that needs no training.
        statistics_seconds: of all clients, by statistic.
        encode_seconds: of all clients.
        scatter: how far Fishers are expected to be off because directions were drawn, mean over the clients; None where
            none could be.
    """

    artifact: Artifact
    result: Result
    measures: Measures
    timings: Mapping[str, float]
    trained: list[str]
    failed: list[int]
    train_seconds: float
    statistics_seconds: dict[str, float]
    encode_seconds: float
    scatter: float | None


def _round(federations: Federations, place: Place, label: str, turn: Turn, outcome: Outcome) -> _Round:
    bound = federations.methods[label]
    members = federations.members(place, bound, turn)
    failed = [
        one for one in members if any(name in outcome.lost for name in federations.names_of_client(place, one, turn))
    ]
    left = [client for client in members if client not in failed]
    uploads = [federations.names_of_statistics(place, client, bound, turn) for client in left]
    trained = [federations.training(place, client, turn).name for client in left]

    def seconds(names: Iterable[str]) -> float:
        return sum(read_timings(outcome.artifacts[name])["seconds"] for name in names)

    artifact = outcome.artifacts[aggregation_name(place, label, turn.number)]
    timings = read_timings(artifact)
    return _Round(
        artifact=artifact,
        result=read_result(artifact),
        measures=read_measures(outcome.artifacts[testing_name(place, label, turn.number)]),
        timings=timings,
        trained=trained,
        failed=failed,
        train_seconds=seconds(trained) if bound.method.trains else 0.0,
        statistics_seconds={
            one.name: seconds(names[one.name] for names in uploads)
            for one in bound.method.uploads
            if one.name != "weights"
        },
        encode_seconds=(
            seconds(federations.sending(place, client, bound, turn).name for client in left)
            if bound.summation is None
            else timings["client_seconds"]
        ),
        scatter=_scatter(place, [outcome.artifacts[name] for name in _fishers(bound, uploads)]),
    )


def _fishers(bound: BoundMethod, uploads: Iterable[Mapping[str, str]]) -> list[str]:
    """Name one job for each client that computes a Fisher; all Fishers of a client see the same directions."""
    sent = [one.name for one in bound.method.uploads if one.approximation is not None]
    return [names[sent[0]] for names in uploads] if sent else []


def _scatter(place: Place, fishers: Sequence[Artifact]) -> float | None:
    if not fishers or not draws_directions(estimator_of(place.fisher)):
        return None
    return statistics.fmean(read_scatter(one) for one in fishers)


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


def _training(plan: BenchmarkPlan, place: Place) -> dict[str, Any]:
    """Say how the clients of one setting trained, and in groups of how many where they trained together."""
    train, objective, together = plan.settings.train, place.cell.objective, group_size(place)
    return {
        **train.of(objective).model_dump(mode="json", exclude={"objective", "together"}),
        **({} if together is None else {"together": together}),
        **bind_objective(objective, train.objective).described(),
        **({"augment": "never"} if plan.settings.data.augment == "never" else {}),
    }
