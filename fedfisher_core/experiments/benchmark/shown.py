"""What the page of a benchmark shows in addition to its rows, as plain data that a report keeps."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.data.shifts import Shifts
from fedfisher_core.data.tensors import Dataset
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.benchmark.figures import Grid, partition_grid
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.experiments.benchmark.remarks import client_names, exchanged_names, natural_notes
from fedfisher_core.experiments.benchmark.results import failed_settings
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.federation.decoding import load_data
from fedfisher_core.federation.partition import (
    class_names,
    data_notes,
    label_counts,
    maker_names,
    nobodys_test_size,
    own_test_sizes,
    shifts_of,
    unscaled_features,
)
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.page import Gallery

_MOST_COLUMNS = 9
_WHITE = 255


@dataclass(frozen=True)
class PartitionView:
    """How one seed's data is split over the clients.

    Args:
        grid: examples by client and class, with whose examples each client holds, and how it sees them.
        note: what else a reader must know of them.
        data_notes: sentences on the data set.
    """

    grid: Grid
    seed: int
    note: str = ""
    data_notes: Sequence[str] = ()


def shown_of(plan: BenchmarkPlan, outcome: Outcome) -> dict[str, Any]:
    """Gather the splits of the first seed, images as clients see them, and methods that failed with every seed."""
    first = [place for place in plan.federations.all if place.setting.seed == plan.settings.seeds[0]]
    # Networks and objectives share splits.
    splits = {
        plan.federations.partition(place).name: Setting.of_seeded(place.setting, plan.settings) for place in first
    }
    views = [
        _view(setting, plan.settings.seeds[0], outcome.artifacts[name])
        for name, setting in splits.items()
        if name in outcome.artifacts
    ]
    failed = failed_settings(plan, outcome)
    return {
        "partitions": [asdict(view) for view in views],
        "galleries": [gallery.shown() for gallery in shift_galleries(plan, outcome)],
        "failed": [
            {"setting": asdict(setting), "method": method, "reason": reason}
            for (setting, method), reason in failed.items()
        ],
        "published": plan.settings.report.published,
    }


def _view(setting: Setting, seed: int, partition: Artifact) -> PartitionView:
    shifts, names, makers = shifts_of(partition), list(class_names(partition)), maker_names(partition)
    notes = (
        exchanged_names(shifts, names),
        natural_notes(makers, own_test_sizes(partition), nobodys_test_size(partition), unscaled_features(partition)),
    )
    title = f"{setting.dataset}, {setting.num_clients} clients, {setting.split}"
    levels = client_names(makers, shifts)
    return PartitionView(
        partition_grid(np.array(label_counts(partition)), names, title, levels=levels),
        seed,
        " ".join(note for note in notes if note),
        data_notes(partition),
    )


def shift_galleries(plan: BenchmarkPlan, outcome: Outcome) -> list[Gallery]:
    """Show the first test image of each data set as clients see it, for the first seed.

    Returns:
        One gallery a data set whose images are shifted for some clients: a row for each shift and number of clients,
        with clients whose levels are evenly spread.
    """
    federations = [
        federation for federation in plan.federations.all if federation.setting.seed == plan.settings.seeds[0]
    ]
    rows: dict[tuple[str, str], tuple[Dataset, Shifts]] = {}
    for federation in federations:
        names = plan.federations.partition(federation).name, plan.federations.decoding(federation).name
        if not federation.setting.shift or any(name not in outcome.artifacts for name in names):
            continue
        partition, data = (outcome.artifacts[name] for name in names)
        shifts = shifts_of(partition)
        if shifts is not None and shifts.kind != "labels":
            row = f"{federation.setting.shift}, {federation.setting.clients} clients"
            rows.setdefault((federation.setting.dataset, row), (load_data(data), shifts))
    return [
        _gallery(dataset, [name for (_, name), _ in own], [shown for _, shown in own])
        for dataset, own in gather(rows.items(), lambda item: item[0][0]).items()
    ]


def _gallery(dataset: str, names: Sequence[str], shown: Sequence[tuple[Dataset, Shifts]]) -> Gallery:
    columns = min(_MOST_COLUMNS, *(len(shifts.levels) for _, shifts in shown))
    images = np.stack([_seen(data, shifts, columns) for data, shifts in shown])
    return Gallery(f"{dataset}: one test image as clients see it", tuple(names), images)


def _seen(data: Dataset, shifts: Shifts, columns: int) -> NDArray[np.floating]:
    """Show an image to clients, shape (columns, channels, height, width), from 0 to 1."""
    image = data.test.inputs[:1].float() / _WHITE
    clients = np.linspace(0, len(shifts.levels) - 1, columns).round().astype(int)
    seen = [shifts.of(int(client), test=True).images(image)[0] for client in clients]
    # Noise exceeds black and white.
    return np.stack([one.clamp(0, 1).numpy() for one in seen])
