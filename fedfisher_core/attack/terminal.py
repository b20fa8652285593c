"""The results of a privacy attack as plain text, for the terminal."""

from collections.abc import Sequence

from fedfisher_core.attack.rows import AttackRow, Summary, summarise
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.summary import Measure

_HEADER = ("method", "the attacker has", "attack, %", "distance", "accuracy, %", "seconds")


def attack_table(rows: Sequence[AttackRow]) -> str:
    """Write means and deviations over target labels and seeds as aligned text tables.

    Args:
        rows: the rows of an experiment.

    Returns:
        A block for each data set, network and privacy budget. No newline ends it.
    """
    blocks: dict[tuple[str, str, float | None], list[Summary]] = {}
    summaries = summarise(rows)
    for summary in summaries:
        if not summary.reference:
            blocks.setdefault((summary.dataset, summary.model, summary.epsilon), []).append(summary)
    text = []
    for (dataset, model, epsilon), methods in blocks.items():
        bounds = [summary for summary in summaries if summary.reference and summary.dataset == dataset]
        budget = "" if epsilon is None else f", epsilon {epsilon:g}"
        trials = plural(len(methods[0].rows), "trial")
        text.append(f"{dataset}, {model}{budget}, {trials}\n{_table([*methods, *bounds])}")
    return "\n\n".join(text)


def _table(summaries: Sequence[Summary]) -> str:
    lines = [
        _HEADER,
        *(
            (
                summary.method,
                summary.case,
                _percent(summary.values("attack_accuracy")),
                _plain(summary.values("feature_distance")),
                _percent(summary.values("accuracy")),
                _plain(summary.values("attack_seconds")),
            )
            for summary in summaries
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    # Words to the left, numbers to the right.
    aligned = [
        "  ".join([*map(str.ljust, line[:2], widths[:2]), *map(str.rjust, line[2:], widths[2:])]) for line in lines
    ]
    return "\n".join([aligned[0], "-" * len(aligned[0]), *aligned[1:]])


def _percent(values: Sequence[float]) -> str:
    if not values:
        return ""
    measure = Measure.of(values)
    deviation = "" if measure.deviation is None else f" ± {100 * measure.deviation:5.2f}"
    return f"{100 * measure.mean:.2f}{deviation}"


def _plain(values: Sequence[float]) -> str:
    return f"{Measure.of(values).mean:.2f}" if values else ""
