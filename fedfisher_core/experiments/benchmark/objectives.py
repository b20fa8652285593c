"""Each method by what its clients minimise, everything else being the same."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedfisher_core.experiments.benchmark.summary import MethodSummary, OverviewLine, Setting, SettingSummary, overview
from fedfisher_core.reporting.measure import Measure, PairedDifference, gather, paired_difference
from fedfisher_core.settings import PLAIN


@dataclass(frozen=True)
class ObjectiveCell:
    """One method with one objective.

    Args:
        accuracy: over the seeds, a fraction.
        difference: accuracy less that of plain training, paired by seed; None for plain training and without it.
        best: whether no other objective gives the method a higher mean.
    """

    accuracy: Measure
    difference: PairedDifference | None
    best: bool


@dataclass(frozen=True)
class ObjectiveTable:
    """Settings that differ in their objective alone.

    Args:
        setting: what they have in common, as plain training has it.
        objectives: their labels, the plain one first.
        lines: the methods, by role and then by falling accuracy, with a cell for each objective; None where a method
            has no rows.
    """

    setting: Setting
    objectives: tuple[str, ...]
    lines: tuple[tuple[str, tuple[ObjectiveCell | None, ...]], ...]


def by_objective(summaries: Sequence[SettingSummary]) -> list[ObjectiveTable]:
    """Set objectives beside each other.

    Args:
        summaries: the settings of a page, in the order of `sorted_rows`.

    Returns:
        One table for each group of settings that differ in their objective alone; none for a setting that has one.
    """
    groups = gather(summaries, lambda summary: replace(summary.setting, objective=PLAIN))
    return [_table(setting, own) for setting, own in groups.items() if len(own) > 1]


def _table(setting: Setting, summaries: Sequence[SettingSummary]) -> ObjectiveTable:
    labels = tuple(summary.setting.objective for summary in summaries)
    lines = tuple((line.method, _cells(line, labels)) for line in overview(summaries))
    return ObjectiveTable(setting, labels, lines)


def _cells(line: OverviewLine, labels: Sequence[str]) -> tuple[ObjectiveCell | None, ...]:
    top = max(method.accuracy.mean for method in line.present)
    plain = next((method for method, label in zip(line.cells, labels, strict=True) if label == PLAIN), None)
    return tuple(None if method is None else _cell(method, plain, top) for method in line.cells)


def _cell(method: MethodSummary, plain: MethodSummary | None, top: float) -> ObjectiveCell:
    compared = None if plain is None or method is plain else paired_difference(_by_seed(method), _by_seed(plain))
    return ObjectiveCell(method.accuracy, compared, method.accuracy.mean == top)


def _by_seed(method: MethodSummary) -> dict[int, float]:
    return {row.seed: row.accuracy for row in method.rows}
