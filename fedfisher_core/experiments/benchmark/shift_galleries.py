"""Pictures of shifts: the same test image as each client sees it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.data.shifts import Shifts
from fedfisher_core.data.tensors import Dataset
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import shifts_of
from fedfisher_core.reporting.gallery import Gallery
from fedfisher_core.reporting.measure import gather
from fedfisher_core.walk import Outcome

_MOST_COLUMNS = 9
_WHITE = 255


def shift_galleries(plan: BenchmarkPlan, outcome: Outcome) -> list[Gallery]:
    """Show the first test image of each data set as clients see it, for the first seed.

    Args:
        plan: the benchmark.
        outcome: of its jobs.

    Returns:
        One gallery a data set whose images some clients see in another way: a row for each such shift and number of
        clients, and in it clients whose levels are evenly spread.
    """
    places = [place for place in plan.federations.places if place.cell.seed == plan.settings.seeds[0]]
    rows: dict[tuple[str, str], tuple[Dataset, Shifts]] = {}
    for place in places:
        names = plan.federations.partition(place).name, plan.federations.decoding(place).name
        if not place.cell.shift or any(name not in outcome.artifacts for name in names):
            continue
        partition, data = (outcome.artifacts[name] for name in names)
        shifts = shifts_of(partition)
        if shifts is not None and shifts.kind != "labels" and not data.shed:
            row = f"{place.cell.shift}, {place.cell.clients} clients"
            rows.setdefault((place.cell.dataset, row), (load_data(data), shifts))
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
    # Noise goes beyond black and white.
    return np.stack([one.clamp(0, 1).numpy() for one in seen])
