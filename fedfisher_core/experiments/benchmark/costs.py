"""What a client spends on its statistics, beside its training."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, by_setting
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
        rows: the rows, in any order. References are left out, as some train other clients, and methods that need no
            training.

    Returns:
        One entry for each setting whose methods train and asked for a statistic, in the order of `sorted_rows`.
    """
    one_shot = by_setting(row for row in rows if not row.reference and row.client_train_seconds)
    costs = [_cost(setting, [row for own in methods.values() for row in own]) for setting, methods in one_shot.items()]
    return tuple(cost for cost in costs if cost.statistics)


def _cost(setting: Setting, rows: Sequence[Row]) -> ClientCost:
    training = {row.seed: row.client_train_seconds for row in rows}
    statistics: dict[str, dict[int, tuple[float, float]]] = {}
    for row in rows:
        for name, seconds in row.client_statistics_seconds.items():
            # Beside the training of the same row: a method that lost a client has less of both.
            statistics.setdefault(name, {})[row.seed] = (seconds, seconds / row.client_train_seconds)
    return ClientCost(
        setting=setting,
        training=Measure.of(list(training.values())),
        statistics=tuple(_statistic(name, list(spent.values())) for name, spent in sorted(statistics.items())),
    )


def _statistic(name: str, spent: Sequence[tuple[float, float]]) -> StatisticCost:
    seconds, shares = zip(*spent, strict=True)
    return StatisticCost(name=name, seconds=Measure.of(seconds), share=Measure.of(shares))
