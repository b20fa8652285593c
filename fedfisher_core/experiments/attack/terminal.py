"""The results of a privacy attack in short, for the terminal."""

from collections.abc import Sequence

from fedfisher_core.experiments.attack.rows import AttackRow, Summary, summarise
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import Measure
from fedfisher_core.reporting.tables import Table

_HEADER = ("method", "the attacker has", "attack, %", "distance", "accuracy, %", "seconds")


def attack_tables(rows: Sequence[AttackRow]) -> list[Table]:
    """Write means and deviations over target labels and seeds as tables.

    Args:
        rows: the rows of an experiment.

    Returns:
        A table for each data set, network and privacy budget.
    """
    groups: dict[tuple[str, str, float | None], list[Summary]] = {}
    summaries = summarise(rows)
    for summary in summaries:
        if not summary.reference:
            groups.setdefault((summary.dataset, summary.model, summary.epsilon), []).append(summary)
    tables = []
    for (dataset, model, epsilon), methods in groups.items():
        bounds = [summary for summary in summaries if summary.reference and summary.dataset == dataset]
        budget = "" if epsilon is None else f", epsilon {epsilon:g}"
        title = f"{dataset}, {model}{budget}, {plural(len(methods[0].rows), 'trial')}"
        tables.append(Table(title=title, header=_HEADER, lines=[_line(one) for one in [*methods, *bounds]], words=2))
    return tables


def _line(summary: Summary) -> tuple[str, ...]:
    return (
        summary.method,
        summary.case,
        _percent(summary.values("attack_accuracy")),
        _plain(summary.values("feature_distance")),
        _percent(summary.values("accuracy")),
        _plain(summary.values("attack_seconds")),
    )


def _percent(values: Sequence[float]) -> str:
    if not values:
        return ""
    measure = Measure.of(values)
    deviation = "" if measure.deviation is None else f" ± {100 * measure.deviation:5.2f}"
    return f"{100 * measure.mean:.2f}{deviation}"


def _plain(values: Sequence[float]) -> str:
    return f"{Measure.of(values).mean:.2f}" if values else ""
