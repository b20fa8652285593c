"""What a page shows of clients: measures on their own examples, and the cost of their statistics."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary, by_setting
from fedfisher_core.reporting.measure import Measure


@dataclass(frozen=True)
class OnClients:
    """One method in one setting, over its seeds. Each field is None where it was not measured.

    Args:
        barrier_accuracy: of clients' own networks less that of the global one, a fraction.
        barrier_loss: of the global network less that of clients' own ones, in nats.
        unseen_accuracy: of the global network on unseen clients' examples, a fraction.
        unseen_loss: of the same, in nats.
        personalised_accuracy: on the same examples, after each client trained the network for itself, a fraction.
        personalised_loss: of the same, in nats.
        canary_exposure: of the canary in the global network, in bits.
        canary_client_exposure: the same in the network of the client that holds the canary.
    """

    barrier_accuracy: Measure | None
    barrier_loss: Measure | None
    unseen_accuracy: Measure | None
    unseen_loss: Measure | None
    personalised_accuracy: Measure | None
    personalised_loss: Measure | None
    canary_exposure: Measure | None
    canary_client_exposure: Measure | None

    @classmethod
    def of(cls, method: MethodSummary) -> "OnClients":
        """Summarise a method over its seeds."""
        names = [one.name for one in fields(cls)]
        return cls(*(method.measure(name) if method.values(name) else None for name in names))

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return any(getattr(self, one.name) is not None for one in fields(self))


@dataclass(frozen=True)
class ClientTable:
    """One setting in which something was measured on clients' own examples.

    Args:
        lines: methods with what was measured, in the order of the results.
    """

    setting: Setting
    lines: tuple[tuple[str, OnClients], ...]
    unmeasured: tuple[str, ...]

    @property
    def barrier(self) -> bool:
        """Whether a method has a barrier."""
        return any(one.barrier_accuracy is not None for _, one in self.lines)

    @property
    def personalised(self) -> bool:
        """Whether a method was personalised."""
        return any(one.personalised_accuracy is not None for _, one in self.lines)

    @property
    def canary(self) -> bool:
        """Whether the exposure of a canary was measured."""
        return any(one.canary_exposure is not None for _, one in self.lines)


def on_clients(summaries: Sequence[SettingSummary]) -> list[ClientTable]:
    """Collect what was measured on clients' own examples, a table for each setting in which something was."""
    return [table for table in map(_table, summaries) if table.lines]


def _table(summary: SettingSummary) -> ClientTable:
    found = [(one.method, OnClients.of(one)) for one in summary.methods]
    return ClientTable(
        summary.setting,
        lines=tuple((method, measured) for method, measured in found if measured),
        unmeasured=tuple(method for method, measured in found if not measured),
    )


@dataclass(frozen=True)
class StatisticCost:
    """The cost of one statistic.

    Args:
        seconds: summed over the clients.
        share: seconds as a fraction of local training.
    """

    name: str
    seconds: Measure
    share: Measure


@dataclass(frozen=True)
class ClientCost:
    """The clients' costs in one setting, over its seeds.

    Args:
        training: seconds of local training, summed over the clients.
        statistics: by name.
    """

    setting: Setting
    training: Measure
    statistics: tuple[StatisticCost, ...]


def client_costs(rows: Iterable[Row]) -> tuple[ClientCost, ...]:
    """Gather what clients spent on training and on each statistic, by setting, in the order of `sorted_rows`.

    Settings without a statistic are left out. So are references, as some train other clients, and methods that need no
    training.
    """
    one_shot = by_setting(row for row in rows if not row.reference and row.client_train_seconds)
    costs = [_cost(setting, [row for own in methods.values() for row in own]) for setting, methods in one_shot.items()]
    return tuple(cost for cost in costs if cost.statistics)


def _cost(setting: Setting, rows: Sequence[Row]) -> ClientCost:
    training = {row.seed: row.client_train_seconds for row in rows}
    statistics: dict[str, dict[int, tuple[float, float]]] = {}
    for row in rows:
        for name, seconds in row.client_statistics_seconds.items():
            # Divided by the training of the same row, since a method that lost a client has less of both.
            statistics.setdefault(name, {})[row.seed] = (seconds, seconds / row.client_train_seconds)
    return ClientCost(
        setting=setting,
        training=Measure.of(list(training.values())),
        statistics=tuple(_statistic(name, list(spent.values())) for name, spent in sorted(statistics.items())),
    )


def _statistic(name: str, spent: Sequence[tuple[float, float]]) -> StatisticCost:
    seconds, shares = zip(*spent, strict=True)
    return StatisticCost(name=name, seconds=Measure.of(seconds), share=Measure.of(shares))
