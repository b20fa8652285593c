"""What a client spends on its statistics, beside its training."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from fedfisher_core.experiments.benchmark.rows import Row, sorted_rows
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.reporting.measure import Measure


@dataclass(frozen=True)
class StatisticCost:
    """One statistic.

    Args:
        name: of the statistic.
        seconds: summed over the clients.
        share: the same as a fraction of local training.
    """

    name: str
    seconds: Measure
    share: Measure


@dataclass(frozen=True)
class ClientCost:
    """The clients of one setting, over its seeds.

    Args:
        setting: the setting.
        training: seconds of local training, summed over the clients.
        statistics: what was computed beside, by name.
    """

    setting: Setting
    training: Measure
    statistics: tuple[StatisticCost, ...]


def client_costs(rows: Iterable[Row]) -> tuple[ClientCost, ...]:
    """Gather what clients spent on training and on each statistic.

    Args:
        rows: the rows, in any order; references are left out, as some train other clients.

    Returns:
        One entry for each setting whose methods asked for a statistic, in the order of `sorted_rows`.
    """
    training: dict[Setting, dict[int, float]] = defaultdict(dict)
    statistics: dict[Setting, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in sorted_rows(rows):
        if row.reference:
            continue
        setting = Setting.of(row)
        training[setting][row.seed] = row.client_train_seconds
        for name, seconds in row.client_statistics_seconds.items():
            statistics[setting][name][row.seed] = seconds
    return tuple(
        ClientCost(
            setting=setting,
            training=Measure.of(list(training[setting].values())),
            statistics=tuple(
                StatisticCost(
                    name=name,
                    seconds=Measure.of(list(seconds.values())),
                    share=Measure.of([value / training[setting][seed] for seed, value in seconds.items()]),
                )
                for name, seconds in sorted(by_name.items())
            ),
        )
        for setting, by_name in statistics.items()
    )
