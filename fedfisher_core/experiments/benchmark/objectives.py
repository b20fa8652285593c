"""Each method by what its clients minimise, everything else being the same."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedfisher_core.experiments.benchmark.summary import SettingSummary, overview
from fedfisher_core.reporting.measure import (
    DIGITS,
    Measure,
    PairedDifference,
    gather,
    mean_by_seed,
    paired_difference,
    with_most_seeds,
)
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
    """Settings that differ in their objective alone, or the mean over several such groups.

    Args:
        title: what they have in common.
        objectives: their labels, the plain one first.
        lines: the methods, by role and then by falling accuracy, with a cell for each objective; None where a method
            has no rows.
    """

    title: str
    objectives: tuple[str, ...]
    lines: tuple[tuple[str, tuple[ObjectiveCell | None, ...]], ...]


def by_objective(summaries: Sequence[SettingSummary]) -> list[ObjectiveTable]:
    """Set objectives beside each other.

    Args:
        summaries: the settings of a page, in the order of `sorted_rows`.

    Returns:
        One table for each group of settings that differ in their objective alone, none for a setting that has one.
        Before several such tables stands the mean over them, of the methods and objectives that all have.
    """
    groups = gather(summaries, lambda summary: replace(summary.setting, objective=PLAIN))
    several = {setting: own for setting, own in groups.items() if len(own) > 1}
    tables = [_table(setting.label, [own]) for setting, own in several.items()]
    if len(several) < 2:
        return tables
    whole = _table(f"mean over {len(several)} settings", list(several.values()))
    return [whole, *tables] if whole.lines and len(whole.objectives) > 1 else tables


def _table(title: str, groups: Sequence[Sequence[SettingSummary]]) -> ObjectiveTable:
    """Compare objectives in the mean over groups; of several, only what all have is shown."""
    columns = [{summary.setting.objective: summary for summary in own} for own in groups]
    labels = tuple(label for label in columns[0] if all(label in column for column in columns))
    lines = []
    for line in overview([column[label] for column in columns for label in labels]):
        cells = _cells(line.method, [[column[label] for column in columns] for label in labels], labels)
        if len(groups) == 1 or None not in cells:
            lines.append((line.method, cells))
    return ObjectiveTable(title, labels, tuple(lines))


def _cells(
    method: str, settings: Sequence[Sequence[SettingSummary]], labels: Sequence[str]
) -> tuple[ObjectiveCell | None, ...]:
    """Make the cells of one method from the settings of each objective."""
    found = {label: _by_seed(method, own) for label, own in zip(labels, settings, strict=True)}
    measures = {label: Measure.of(list(by_seed.values())) for label, by_seed in found.items() if by_seed}
    whole = with_most_seeds({label: measure.n for label, measure in measures.items()})
    top = max((measures[label].mean for label in whole), default=0.0)
    plain = found.get(PLAIN, {})
    return tuple(
        ObjectiveCell(
            accuracy=measures[label],
            difference=None if label == PLAIN else paired_difference(found[label], plain),
            best=label in whole and round(measures[label].mean - top, DIGITS) == 0,
        )
        if label in measures
        else None
        for label in labels
    )


def _by_seed(method: str, settings: Sequence[SettingSummary]) -> dict[int, float]:
    """Average a method's accuracy over settings, seed by seed; empty where it did not run in all."""
    own = [one for summary in settings for one in summary.methods if one.method == method]
    if len(own) < len(settings):
        return {}
    return mean_by_seed([{row.seed: row.accuracy for row in one.rows} for one in own])
