"""What a benchmark measured, as rows."""

from typing import Any

from fedfisher_core.client.objectives.binding import bind_objective
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.experiments.benchmark.rows import Row, sorted_rows
from fedfisher_core.experiments.benchmark.summary import ROUNDS, Setting
from fedfisher_core.federation.aggregating import read_result
from fedfisher_core.federation.auditing import read_audit
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.private_training import spent_by
from fedfisher_core.store import read_timings
from fedfisher_core.walk import Outcome


def make_rows(plan: BenchmarkPlan, outcome: Outcome) -> list[Row]:
    """Make one row for every method in every federation, where it did not fail.

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
        if federations.aggregation(place, label).name in outcome.artifacts
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
            cell, name = (Setting.of_cell(place.cell), label), federations.aggregation(place, label).name
            if name in outcome.failed:
                cells.setdefault(cell, outcome.failed[name].reason)
            else:
                made.add(cell)
    return {cell: reason for cell, reason in cells.items() if cell not in made}


def _row(plan: BenchmarkPlan, place: Place, label: str, outcome: Outcome) -> Row:
    federations = plan.federations
    bound, cell = federations.methods[label], place.cell
    members = federations.members(place, bound)
    uploads = {client: federations.names_of_statistics(place, client, bound) for client in members}
    failed = [one for one in members if any(name in outcome.lost for name in federations.names_of_client(place, one))]
    left = [client for client in members if client not in failed]

    trained = [federations.training(place, client).name for client in left]
    privacy, audit = federations.settings.privacy, federations.audit(place)
    # The rows are there even where the audit failed.
    audited = None if audit is None else outcome.artifacts.get(audit.name)

    def seconds(names: list[str]) -> float:
        return sum(read_timings(outcome.artifacts[name])["seconds"] for name in names)

    artifact = outcome.artifacts[federations.aggregation(place, label).name]
    result, timings = read_result(artifact), read_timings(artifact)
    return Row(
        benchmark=plan.settings.name,
        dataset=cell.dataset,
        model=cell.model,
        partition=cell.scheme,
        alpha=cell.alpha,
        num_clients=cell.clients,
        num_rounds=ROUNDS,
        seed=cell.seed,
        method=label,
        method_settings=bound.described(),
        uploads={name: view.value for name, view in bound.method.views.items()},
        accuracy=result.measures.accuracy,
        loss=result.measures.loss,
        worst_client_accuracy=result.measures.worst_client_accuracy,
        worst_class_accuracy=result.measures.worst_class_accuracy,
        client_train_seconds=seconds(trained),
        client_statistics_seconds={
            one.name: seconds([uploads[client][one.name] for client in left])
            for one in bound.method.uploads
            if one.name != "weights"
        },
        client_encode_seconds=(
            seconds([federations.sending(place, client, bound).name for client in left])
            if bound.summation is None
            else timings["client_seconds"]
        ),
        server_seconds=timings["seconds"],
        peak_memory_bytes=int(timings["peak_memory_bytes"]),
        uses_validation=result.uses_validation,
        reference=not bound.method.one_shot,
        failed_clients=failed,
        artifact=artifact.key,
        epsilon=None if privacy is None else max(spent_by(outcome.artifacts[name]) for name in trained),
        audited_epsilon=None if audited is None else read_audit(audited).lower,
        track=plan.settings.track,
        training=_training(plan, cell.objective),
        train_size=plan.settings.data.train_size,
        held_out=plan.settings.data.held_out,
        shift=cell.shift.kind if cell.shift else None,
        shift_strength=cell.shift.strength if cell.shift else None,
        objective=cell.objective,
        # An aggregation keeps each of its networks in a file.
        num_networks=len(list(artifact.path.glob("network_*.safetensors"))),
        **vars(result.traffic),
    )


def _training(plan: BenchmarkPlan, objective: str) -> dict[str, Any]:
    """Say how the clients of one setting trained."""
    train = plan.settings.train
    return {
        **train.model_dump(mode="json", exclude={"objective"}),
        **bind_objective(objective, train.objective).described(),
    }
