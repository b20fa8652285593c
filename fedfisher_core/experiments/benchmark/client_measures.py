"""What was measured on clients' own examples, as a page shows it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary
from fedfisher_core.reporting.measure import Measure


@dataclass(frozen=True)
class OnClients:
    """One method in one setting, over its seeds; each is None where it was not measured.

    Args:
        barrier_accuracy: of clients' own networks less that of the global one, a fraction.
        barrier_loss: of the global network less that of clients' own ones, in nats.
        unseen_accuracy: of the global network on unseen clients' examples, a fraction.
        unseen_loss: the same, in nats.
        personalised_accuracy: after they trained it for themselves, a fraction.
        personalised_loss: the same, in nats.
    """

    barrier_accuracy: Measure | None
    barrier_loss: Measure | None
    unseen_accuracy: Measure | None
    unseen_loss: Measure | None
    personalised_accuracy: Measure | None
    personalised_loss: Measure | None

    @classmethod
    def of(cls, method: MethodSummary) -> "OnClients":
        """Summarise a method over its seeds."""
        return cls(*(_measure(method, one.name) for one in fields(cls)))

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return any(getattr(self, one.name) is not None for one in fields(self))


@dataclass(frozen=True)
class ClientTable:
    """One setting in which something was measured on clients' own examples.

    Args:
        setting: the setting.
        lines: methods with what was measured, in the order of the results.
        unmeasured: the other methods.
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


def on_clients(summaries: Sequence[SettingSummary]) -> list[ClientTable]:
    """Collect what was measured on clients' own examples.

    Args:
        summaries: the settings of a page.

    Returns:
        A table for each setting in which something was measured.
    """
    return [table for table in map(_table, summaries) if table.lines]


def _table(summary: SettingSummary) -> ClientTable:
    found = [(one.method, OnClients.of(one)) for one in summary.methods]
    return ClientTable(
        summary.setting,
        lines=tuple((method, measured) for method, measured in found if measured),
        unmeasured=tuple(method for method, measured in found if not measured),
    )


def _measure(method: MethodSummary, field: str) -> Measure | None:
    return method.measure(field) if method.values(field) else None
