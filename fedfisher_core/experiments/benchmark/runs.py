"""The runs of a benchmark in MLflow, where methods are compared."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial

import numpy as np

from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import MethodSummary, summarise
from fedfisher_core.experiments.benchmark.views import client_names
from fedfisher_core.federation.partition import class_names, label_counts, maker_names, shifts_of
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.reporting.measure import Repeated
from fedfisher_core.reporting.runs import Record, Runs, digest
from fedfisher_core.settings import AVERAGE, NO_SHIFT, PLAIN, Cell, Shift
from fedfisher_core.store import Artifact
from fedfisher_core.walk import Outcome

_MEASURES = ("accuracy", "loss", "worst_client_accuracy", "worst_class_accuracy")
_OF_CLIENTS = (
    "barrier_accuracy",
    "barrier_loss",
    "unseen_accuracy",
    "unseen_loss",
    "personalised_accuracy",
    "personalised_loss",
)
_SUMMARISED = (*_MEASURES, *_OF_CLIENTS, "server_seconds", "upload_bits", "download_bits")
_ONLY_SINGLE = ("client_train_seconds", "client_encode_seconds", "upload_bits_formula", "peak_memory_bytes")
_SETTING_FIELDS = ("dataset", "model", "objective", "server_optimiser", "partition", "num_clients")
_CURVES = (*_MEASURES, "upload_bits", "download_bits")
_DPI = 80


def make_runs(plan: BenchmarkPlan, outcome: Outcome, rows: Sequence[Row]) -> Runs:
    """List one run for every row, and one summary run for every setting and method; see `Experiment.runs`."""
    places = {place.cell: place for place in plan.federations.places}
    varying = [name for name in _SETTING_FIELDS if len({getattr(row, name) for row in rows}) > 1]
    # All methods of a federation share the picture of who holds what, wherever their rows stand.
    picture = cache(_partition_picture)
    single = []
    for row in rows:
        place = places[_cell(row)]
        partition = outcome.artifacts[plan.federations.partition(place).name]
        measures = outcome.artifacts[plan.federations.names_of_tests(place, row.method)[-1]]
        draw = partial(_row_figures, place.cell, row.method, measures, partition, picture)
        single.append(_record(row, varying, (partition.digest, measures.digest), draw))
    return Runs(single=single, summary=list(_summary_records(rows)))


def _record(
    row: Row, varying: Sequence[str], drawn_from: tuple[str, ...], draw: Callable[[], dict[str, bytes]]
) -> Record:
    # The method, what differs between the settings of the benchmark, alpha, the shift and the seed: charts have little
    # room.
    place = [str(getattr(row, name)) for name in varying]
    name = " ".join([row.method, *place, *_split(row), f"s={row.seed}"])
    return Record(
        name=name,
        params=_params(row) | {"seed": str(row.seed)},
        metrics=Repeated([row]).means(_SUMMARISED + _ONLY_SINGLE)
        | {f"{statistic}_seconds": seconds for statistic, seconds in row.client_statistics_seconds.items()},
        tags={
            "artifact": row.artifact,
            "method_settings": json.dumps(row.method_settings),
            "reference": str(row.reference).lower(),
            "uses_validation": str(row.uses_validation).lower(),
            "failed_clients": json.dumps(row.failed_clients),
            "start_sent": str(row.start_sent),
        },
        drawn_from=drawn_from,
        draw=draw,
        # MLflow's steps are rounds.
        series={
            f"{name}_by_round": {point.round: float(getattr(point, name)) for point in row.curve} for name in _CURVES
        }
        if row.curve
        else {},
    )


def _split(row: Row) -> list[str]:
    alpha = [] if row.alpha is None else [f"a={row.alpha:g}"]
    if row.shift is None:
        return alpha
    return [
        *alpha,
        f"{row.shift}={row.shift_strength:g}",
        *([] if row.shift_classes is None else [f"of {row.shift_classes}"]),
    ]


def _cell(row: Row) -> Cell:
    return Cell(
        dataset=row.dataset,
        model=row.model,
        scheme=row.partition,
        alpha=row.alpha,
        clients=row.num_clients,
        shift=(
            NO_SHIFT
            if row.shift is None
            else Shift(kind=row.shift, strength=row.shift_strength, classes=row.shift_classes)
        ),
        seed=row.seed,
        objective=row.objective,
        server_optimiser=row.server_optimiser,
    )


def _row_figures(
    cell: Cell, method: str, measures: Artifact, partition: Artifact, picture: Callable[[Cell, Artifact], bytes]
) -> dict[str, bytes]:
    # Drawing is loaded where a run is new only.
    from fedfisher_core.experiments.benchmark.grids import confusion_grid

    confusion = np.array(read_measures(measures).confusion)
    grid = confusion_grid(confusion, class_names(partition), f"{method}, {cell.label}")
    return {"partition.svg": picture(cell, partition), "confusion.svg": grid.file()}


def _partition_picture(cell: Cell, partition: Artifact) -> bytes:
    from fedfisher_core.experiments.benchmark.grids import partition_grid

    counts = np.array(label_counts(partition))
    clients = client_names(maker_names(partition), shifts_of(partition))
    title = f"Images by client and class, {cell.label}"
    return partition_grid(counts, class_names(partition), title, levels=clients).file()


def _summary_records(rows: Sequence[Row]) -> Iterator[Record]:
    content = digest([asdict(row) for row in rows])
    charts = cache(partial(_charts, rows))
    for summary in summarise(rows):
        for method in summary.methods:
            yield Record(
                name=method.method,
                params=_params(method.row),
                metrics=_means(method),
                tags={"seeds": json.dumps(method.seeds), "reference": str(method.row.reference).lower()},
                drawn_from=(content,),
                draw=charts,
            )


def _charts(rows: Sequence[Row]) -> dict[str, bytes]:
    from fedfisher_core.experiments.benchmark import figures
    from fedfisher_core.experiments.benchmark.algorithms import as_algorithms, by_algorithm
    from fedfisher_core.experiments.benchmark.curves import curves_figure
    from fedfisher_core.reporting.drawing import to_png

    tables = by_algorithm(summarise(as_algorithms(rows)))
    return {
        "accuracy_by_alpha.png": to_png(figures.accuracy_by_alpha_figure(rows), dpi=_DPI),
        "accuracy_by_bits.png": to_png(figures.accuracy_by_bits_figure(rows), dpi=_DPI),
        "time.png": to_png(figures.time_figure(rows), dpi=_DPI),
        **({"rounds.png": to_png(curves_figure(tables), dpi=_DPI)} if tables else {}),
    }


def _means(method: MethodSummary) -> dict[str, float]:
    above = {} if method.difference is None else {"accuracy_above_fedavg": method.difference.mean}
    return method.means(_SUMMARISED) | above


def _params(row: Row) -> dict[str, str]:
    return {
        "dataset": row.dataset,
        "model": row.model,
        # Parameters identify a run: those of plain training stay the runs that they were.
        **({} if row.objective == PLAIN else {"objective": row.objective}),
        **({} if row.server_optimiser == AVERAGE else {"server_optimiser": row.server_optimiser}),
        "partition": row.partition,
        "alpha": "none" if row.alpha is None else f"{row.alpha:g}",
        "clients": str(row.num_clients),
        "rounds": str(row.num_rounds),
        **({} if row.cohort is None else {"cohort": str(row.cohort)}),
        **({} if row.unseen_clients is None else {"unseen_clients": str(row.unseen_clients)}),
        "method": row.method,
        **({} if row.shift_name is None else {"shift": row.shift_name}),
    }
