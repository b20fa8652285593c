"""The README's picture and its table of methods, from committed reports; run as `python -m benchmarks.overview`.

It measures nothing. It writes `reports/overview.svg`, and prints the table as it stands in the README.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from fedfisher_core.experiments.benchmark.rows import Role
from fedfisher_core.experiments.leaderboard.entries import BenchmarkReport, make_entries, read_reports
from fedfisher_core.experiments.leaderboard.ranking import OverSeeds, over_seeds
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.reporting.measure import BASELINE, PairedDifference, gather, mean_by_seed, paired_difference
from fedfisher_core.reporting.page import template_environment
from fedfisher_core.reporting.rows import RESULTS, read_rows

K = TypeVar("K", bound=Hashable)

REPORTS = Path("reports")
PICTURE = "overview.svg"
OURS = "gaussian_distillation"

_TRACK = "best_effort"
_ATTACK = "privacy_attack"
_NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Choice:
    """A line of the table.

    Args:
        need: what the reader looks for.
        method: its label in the reports.
        attacked: its label in the report of the attack; None where it was not attacked.
    """

    need: str
    method: str
    attacked: str | None


CHOICES = (
    Choice("the most accurate network", OURS, f"{OURS}, compressed"),
    Choice("accuracy, from the sum of networks and each one's K-FAC", "fedfisher_kfac", "fedfisher_kfac, compressed"),
    Choice("accuracy, and a server of some 15 s in the mean", "fedlpa", None),
    Choice("accuracy, and a server of some 6 s in the mean", "regmean", None),
    Choice("no work but training and a mean", BASELINE, "fedavg"),
    Choice("a server of less than a second", "fisher_merge", None),
    Choice("secure sums (measured without masks)", "gradient_matching", None),
    Choice("sums alone, and measured by the attack", "fedfisher_diag", "fedfisher_diag"),
    Choice("an ensemble, weighted by labels", "ensemble_by_labels", None),
    Choice("an ensemble of equal votes", "ensemble", "ensemble"),
)


@dataclass(frozen=True)
class Line:
    """A method in the picture, in pixels.

    Args:
        left: of its interval.
        middle: its mean.
        right: of its interval.
        y: its height.
    """

    label: str
    text: str
    ours: bool
    left: float
    middle: float
    right: float
    y: float


def best_effort(reports: Path) -> list[BenchmarkReport]:
    """Read the reports in which each method has the best settings that an equal search found."""
    found = read_reports([reports]).benchmarks
    return [one for one in found if {entry.track for entry in make_entries([one])} == {_TRACK}]


def above_baseline(reports: Sequence[BenchmarkReport]) -> list[OverSeeds]:
    """Compare each method and each ensemble with FedAvg in the settings in which it ran, the most accurate first."""
    entries = make_entries(reports)
    labels = dict.fromkeys(one.method for one in entries if one.kind is Role.ONE_NETWORK and one.method != BASELINE)
    compared = over_seeds(entries, [BASELINE, *labels])
    return [replace(one, difference=-one.difference) for one in compared]


def mean_of(values: Mapping[K, float]) -> PairedDifference:
    """Average one value a seed, or another repetition, with an interval."""
    mean = paired_difference(values, dict.fromkeys(values, 0.0))
    assert mean is not None
    return mean


def with_interval(mean: PairedDifference, digits: int = 1, *, least: float = -math.inf, most: float = math.inf) -> str:
    """Write a mean with its 95 % interval, cut at the least and the most that the quantity can be."""
    if mean.interval is None:
        return f"{mean.mean:z.{digits}f} (one seed)"
    low, high = max(mean.interval[0], least), min(mean.interval[1], most)
    return f"{mean.mean:z.{digits}f} ({low:z.{digits}f} to {high:z.{digits}f})"


def in_points(difference: PairedDifference) -> PairedDifference:
    """Turn fractions into percentage points."""
    deviation = None if difference.deviation is None else 100 * difference.deviation
    return PairedDifference(100 * difference.mean, deviation, difference.n)


def server_seconds(reports: Sequence[BenchmarkReport], method: str) -> PairedDifference:
    """Average the seconds of a server over the settings in which the method has all seeds, seed by seed."""
    settings = [methods[method] for report in reports for methods in report.settings.values()]
    most = max(len(rows) for rows in settings)
    whole = [rows for rows in settings if len(rows) == most]
    return mean_of(mean_by_seed([{row.seed: row.server_seconds for row in rows} for rows in whole]))


def bit_ratio(reports: Sequence[BenchmarkReport], method: str) -> str:
    """Divide what a method uploads by what FedAvg does: the least and the most over settings."""
    ratios = [
        sum(row.upload_bits for row in methods[method])
        / sum(row.upload_bits for row in methods[BASELINE] if row.seed in {one.seed for one in methods[method]})
        for report in reports
        for methods in report.settings.values()
    ]
    return " to ".join(dict.fromkeys(f"{one:.2f}" for one in (min(ratios), max(ratios))))


def recognised(reports: Path, method: str) -> PairedDifference:
    """Average the share of an attack's images that are recognised, over target labels and seeds."""
    rows = [row for row in read_rows(reports / _ATTACK / RESULTS, AttackRow) if row.method == method]
    return mean_of({(row.target_label, row.seed): row.attack_accuracy for row in rows})


def draw(compared: Sequence[OverSeeds]) -> str:
    """Draw points above FedAvg as SVG: single networks, then ensembles."""
    most = max(one.num_settings for one in compared)
    ends = [end for one in compared for end in (one.difference.interval or (one.difference.mean,) * 2)]
    low, high = (10 * edge for edge in (math.floor(10 * min(ends)), math.ceil(10 * max(ends))))
    left, right, top, height = 220.0, 560.0, 44.0, 21.0

    def across(points: float) -> float:
        return left + (right - left) * (points - low) / (high - low)

    groups, y = [], top
    for heading, role in (("One network", Role.ONE_NETWORK), ("Ensembles: all clients’ networks", Role.ENSEMBLE)):
        lines = []
        for one in (one for one in compared if one.kind is role):
            y += height
            mean = in_points(one.difference)
            start, end = mean.interval or (mean.mean, mean.mean)
            fewer = "" if one.num_settings == most else f" ({one.num_settings} settings)"
            lines.append(
                Line(
                    label=one.other + fewer,
                    text=with_interval(mean),
                    ours=one.other == OURS,
                    left=across(start),
                    middle=across(mean.mean),
                    right=across(end),
                    y=y,
                )
            )
        groups.append((heading, lines))
        y += 2 * height
    return (
        template_environment()
        .get_template("overview.svg.j2")
        .render(
            groups=groups,
            ticks=[(across(value), value) for value in range(low, high + 1, 10)],
            bottom=y - height,
            ends=(left, right),
            settings=most,
        )
    )


def table(reports: Path) -> str:
    """Write the README's table of methods in Markdown."""
    chosen = best_effort(reports)
    ahead = {one.other: one.difference for one in above_baseline(chosen)}
    lines = [
        "| you want | method | points above FedAvg | bits / FedAvg | server, s | recognised, % |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in CHOICES:
        cells = (
            one.need,
            f"`{one.method}`",
            "0" if one.method == BASELINE else with_interval(in_points(ahead[one.method])),
            bit_ratio(chosen, one.method),
            with_interval(server_seconds(chosen, one.method), 2),
            with_interval(in_points(recognised(reports, one.attacked)), least=0, most=100)
            if one.attacked
            else _NOT_MEASURED,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Write the picture and print its numbers and the table."""
    compared = above_baseline(best_effort(REPORTS))
    (REPORTS / PICTURE).write_text(draw(compared), encoding="utf-8")
    for role, own in gather(compared, lambda one: one.kind).items():
        print(f"{role}: points above {BASELINE}, with 95 % intervals over seeds")
        for one in own:
            print(f"  {one.other:24} {with_interval(in_points(one.difference)):>24}  {one.num_settings} settings")
    print(f"\n{table(REPORTS)}")


if __name__ == "__main__":
    main()
