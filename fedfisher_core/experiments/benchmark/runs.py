"""The runs of a benchmark in MLflow, which compares methods."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

import numpy as np

from fedfisher_core.data.specs import datasets
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.experiments.benchmark.remarks import client_names
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from fedfisher_core.federation.partition import class_names, label_counts, maker_names, shifts_of
from fedfisher_core.federation.testing import read_measures
from fedfisher_core.reporting.measure import BASELINE, Measure, Repeated
from fedfisher_core.reporting.runs import Dataset, Record, Runs, as_parameters, digest
from fedfisher_core.settings import AVERAGE, NO_SHIFT, PLAIN, SeededSetting, Shift, TrainSettings

_MEASURES = ("accuracy", "loss", "worst_client_accuracy", "worst_class_accuracy")
_OF_CLIENTS = (
    "barrier_accuracy",
    "barrier_loss",
    "unseen_accuracy",
    "unseen_loss",
    "personalised_accuracy",
    "personalised_loss",
    "canary_exposure",
    "canary_client_exposure",
)
_SECONDS = ("server_seconds", "server_processor_seconds", "client_processor_seconds")
_PRIVACY = ("epsilon", "audited_epsilon")
_SUMMARISED = (*_MEASURES, *_OF_CLIENTS, *_SECONDS, "upload_bits", "download_bits", *_PRIVACY)
_ONLY_SINGLE = (
    "client_train_seconds",
    "client_encode_seconds",
    "upload_bits_formula",
    "peak_memory_bytes",
    "least_trace",
    "secure_rounding",
    "secure_clipped",
)
_SETTING_FIELDS = ("dataset", "model", "objective", "server_optimiser", "partition", "num_clients")
_CURVES = (*_MEASURES, "upload_bits", "download_bits")
_GAIN, _PER_MEGABIT = "accuracy_above_fedavg", "accuracy_above_fedavg_per_megabit"
_MEGABIT = 1e6
_HUB = "https://huggingface.co/datasets/"
# MLflow has no room for more of a digest.
_DIGITS = 36


def make_runs(plan: BenchmarkPlan, outcome: Outcome, rows: Sequence[Row]) -> Runs:
    """List one run for every row, and one summary run for every setting and method; see `Experiment.runs`."""
    places = {place.setting: place for place in plan.federations.all}
    varying = [name for name in _SETTING_FIELDS if len({getattr(row, name) for row in rows}) > 1]
    # All methods of a federation share the picture of its partition.
    picture = cache(_partition_picture)
    shared = plan.settings.model_dump(mode="json", include={"privacy", "audit"}, exclude_none=True)
    gains = _gains(rows)
    single = []
    for row in rows:
        place = places[_cell(row)]
        partition = outcome.artifacts[plan.federations.partition(place).name]
        measures = outcome.artifacts[plan.federations.names_of_tests(place, row.method)[-1]]
        draw = partial(_row_figures, place.setting, row.method, measures, partition, picture)
        record = _record(row, varying, (partition.digest, measures.digest), draw)
        single.append(
            replace(
                record,
                metrics={**record.metrics, **gains.get(_address(row), {})},
                settings=_settings(row, shared),
                dataset=Dataset(row.dataset, plan.federations.data(place).key[:_DIGITS], _source(row.dataset)),
            )
        )
    return Runs(single=single, summary=list(_summary_records(rows, varying, gains, shared)))


def _source(dataset: str) -> str:
    spec = datasets.get(dataset)
    return spec.folder if spec.hub is None else f"{_HUB}{spec.hub}"


def _address(row: Row) -> tuple[Setting, str, int]:
    return Setting.of(row), row.method, row.seed


def _gains(rows: Sequence[Row]) -> dict[tuple[Setting, str, int], dict[str, float]]:
    """Compare each row with FedAvg's of the same setting and seed, where there is one.

    Returns:
        By setting, method and seed: the accuracy that the row gains over FedAvg, a fraction, and the gain for each
        megabit that its clients upload, if they do.
    """
    baselines = {(Setting.of(row), row.seed): row.accuracy for row in rows if row.method == BASELINE}
    found = {}
    for row in rows:
        setting, method, seed = _address(row)
        if method != BASELINE and (setting, seed) in baselines:
            gain = row.accuracy - baselines[setting, seed]
            per_megabit = {_PER_MEGABIT: gain / (row.upload_bits / _MEGABIT)} if row.upload_bits else {}
            found[setting, method, seed] = {_GAIN: gain, **per_megabit}
    return found


def _settings(row: Row, shared: Mapping[str, Any]) -> dict[str, str]:
    """Each setting of training, privacy and method as a separate parameter; training's names come first."""
    training = as_parameters(row.training or {})
    # Everywhere else, "method" is the label.
    method = {"method.name" if name == "method" else name: value for name, value in row.method_settings.items()}
    taken = {*_params(row), *TrainSettings.model_fields, *training, "seed"}
    return {**as_parameters(shared), **training, **as_parameters(method, within="method", taken=taken)}


def _record(
    row: Row, varying: Sequence[str], drawn_from: tuple[str, ...], draw: Callable[[], dict[str, bytes]]
) -> Record:
    return Record(
        name=f"{_name(row, varying)} s={row.seed}",
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


def _name(row: Row, varying: Sequence[str]) -> str:
    # Charts have little room: only the method, fields that vary in the benchmark, alpha and the shift.
    return " ".join([row.method, *(str(getattr(row, name)) for name in varying), *_split(row)])


def _split(row: Row) -> list[str]:
    alpha = [] if row.alpha is None else [f"a={row.alpha:g}"]
    if row.shift is None:
        return alpha
    return [
        *alpha,
        f"{row.shift}={row.shift_strength:g}",
        *([] if row.shift_classes is None else [f"of {row.shift_classes}"]),
    ]


def _cell(row: Row) -> SeededSetting:
    return SeededSetting(
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
    setting: SeededSetting,
    method: str,
    measures: Artifact,
    partition: Artifact,
    picture: Callable[[SeededSetting, Artifact], bytes],
) -> dict[str, bytes]:
    # Only a new run loads what draws.
    from fedfisher_core.experiments.benchmark.figures import confusion_grid

    confusion = np.array(read_measures(measures).confusion)
    grid = confusion_grid(confusion, class_names(partition), f"{method}, {setting.label}")
    return {"partition.png": picture(setting, partition), "confusion.png": grid.png()}


def _partition_picture(setting: SeededSetting, partition: Artifact) -> bytes:
    from fedfisher_core.experiments.benchmark.figures import partition_grid

    counts = np.array(label_counts(partition))
    clients = client_names(maker_names(partition), shifts_of(partition))
    title = f"Images by client and class, {setting.label}"
    return partition_grid(counts, class_names(partition), title, levels=clients).png()


def _summary_records(
    rows: Sequence[Row],
    varying: Sequence[str],
    gains: Mapping[tuple[Setting, str, int], Mapping[str, float]],
    shared: Mapping[str, Any],
) -> Iterator[Record]:
    content = digest([asdict(row) for row in rows])
    charts = cache(partial(_charts, rows))
    for summary in summarise(rows):
        for method in summary.methods:
            yield Record(
                name=_name(method.row, varying),
                params=_params(method.row),
                metrics={
                    **method.means(_SUMMARISED),
                    **_mean_gains([gains.get(_address(row), {}) for row in method.rows]),
                },
                settings=_settings(method.row, shared),
                tags={"seeds": json.dumps(method.seeds), "reference": str(method.row.reference).lower()},
                drawn_from=(content,),
                draw=charts,
            )


def _charts(rows: Sequence[Row]) -> dict[str, bytes]:
    from fedfisher_core.experiments.benchmark import figures
    from fedfisher_core.experiments.benchmark.algorithms import as_algorithms, by_algorithm
    from fedfisher_core.experiments.benchmark.answer import standings
    from fedfisher_core.experiments.benchmark.rows import compared_seconds
    from fedfisher_core.reporting.charts import to_png

    summaries = summarise(as_algorithms(rows))
    found = standings(summaries)
    charts = {
        "accuracy": [figures.means_chart(found)],
        "settings": figures.settings_charts(summaries, found),
        "trade_off": figures.trade_off_charts(found, compared_seconds(rows)),
        "rounds": figures.rounds_charts(by_algorithm(summaries)),
    }
    return {
        f"{name}{'' if len(own) == 1 else f'-{number}'}.png": to_png(chart)
        for name, own in charts.items()
        for number, chart in enumerate(own, start=1)
    }


def _mean_gains(gains: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average over the seeds that FedAvg has too."""
    found = {name: [one[name] for one in gains if name in one] for name in (_GAIN, _PER_MEGABIT)}
    return {name: Measure.of(values).mean for name, values in found.items() if values}


def _params(row: Row) -> dict[str, str]:
    return {
        "dataset": row.dataset,
        "model": row.model,
        # Parameters identify a run, so runs of plain training have no parameter for it.
        **({} if row.objective == PLAIN else {"objective": row.objective}),
        **({} if row.server_optimiser == AVERAGE else {"server_optimiser": row.server_optimiser}),
        "partition": row.partition,
        "alpha": "none" if row.alpha is None else f"{row.alpha:g}",
        "clients": str(row.num_clients),
        "rounds": str(row.num_rounds),
        **({} if row.cohort is None else {"cohort": str(row.cohort)}),
        **({} if row.unseen_clients is None else {"unseen_clients": str(row.unseen_clients)}),
        **({} if row.canary_times is None else {"canary_times": str(row.canary_times)}),
        "method": row.method,
        **({} if row.shift_name is None else {"shift": row.shift_name}),
    }
