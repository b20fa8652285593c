"""Two methods compared over the settings that both ran in, seed by seed."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.experiments.leaderboard.entries import BenchmarkReport
from fedfisher_core.reporting.formats import Table, percent, plural, points
from fedfisher_core.reporting.measure import Measure, PairedDifference, mean_by_seed, paired_difference
from fedfisher_core.settings.reading import nearest


@dataclass(frozen=True)
class ComparedSetting:
    """Two methods in one setting of a report, over the seeds that both have.

    Args:
        report: name of the report.
        first: accuracy of the first method by seed.
        second: accuracy of the second method by seed.
    """

    report: str
    setting: Setting
    first: dict[int, float]
    second: dict[int, float]

    @property
    def difference(self) -> PairedDifference:
        """Accuracy of the first method less that of the second."""
        found = paired_difference(self.first, self.second)
        assert found is not None
        return found


def common_settings(reports: Iterable[BenchmarkReport], first: str, second: str) -> list[ComparedSetting]:
    """Find the settings in which two methods have a seed in common, in the order of the reports.

    Args:
        first: label of a method.
        second: label of another method.

    Raises:
        InputError: a method is in no report, or the two share no setting and seed.
    """
    reports = list(reports)
    known = {label for report in reports for methods in report.settings.values() for label in methods}
    for label in (first, second):
        if label not in known:
            raise InputError(
                f"method {label!r} is in none of {plural(len(reports), 'report')}; {nearest(label, known)}"
            )
    if first == second:
        raise InputError(f"method {first!r} is compared with itself; allowed: two methods")
    found = []
    for report in reports:
        for setting, methods in report.settings.items():
            ours, others = ({row.seed: row.accuracy for row in methods.get(label, ())} for label in (first, second))
            seeds = sorted(ours.keys() & others.keys())
            if seeds:
                both = ({seed: own[seed] for seed in seeds} for own in (ours, others))
                found.append(ComparedSetting(report.name, setting, *both))
    if not found:
        raise InputError(
            f"methods {first!r} and {second!r} have no setting and seed in common in {plural(len(reports), 'report')}; "
            "allowed: reports in which both ran"
        )
    return found


def comparison_tables(compared: list[ComparedSetting], first: str, second: str) -> list[Table]:
    """Write the comparison of every setting, and that of all settings together.

    The interval over all settings is of means over the settings, for the seeds that all of them have.
    """
    lines = [
        [
            one.report,
            one.setting.label,
            *(percent(Measure.of(list(own.values())).mean) for own in (one.first, one.second)),
            *_written(one.difference),
        ]
        for one in compared
    ]
    overall = paired_difference(
        mean_by_seed([one.first for one in compared]), mean_by_seed([one.second for one in compared])
    )
    mean = Measure.of([one.difference.mean for one in compared]).mean if overall is None else overall.mean
    wins = [sum(sign * one.difference.mean > 0 for one in compared) for sign in (1, -1)]
    summary = [
        ["mean difference, points", points(mean)],
        ["95 % interval over seeds", "-" if overall is None else _written(overall)[1]],
        ["seeds that all settings have", str(0 if overall is None else overall.n)],
        [f"settings in which {first} is higher", str(wins[0])],
        [f"settings in which {second} is higher", str(wins[1])],
        ["settings in which both are equal", str(len(compared) - sum(wins))],
    ]
    header = ("report", "setting", first, second, "difference", "95 % interval", "seeds")
    return [
        Table(f"accuracy of {first} and {second}, %", header, lines, words=2),
        Table(f"{first} less {second} over {plural(len(compared), 'setting')}", ("", "all"), summary),
    ]


def _written(difference: PairedDifference) -> list[str]:
    interval = difference.interval
    bounds = "-" if interval is None else f"{points(interval[0])} to {points(interval[1])}"
    return [points(difference.mean), bounds, str(difference.n)]
