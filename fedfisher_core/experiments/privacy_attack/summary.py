"""A privacy attack over target labels and seeds: summaries, differences between cases, tables for the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedfisher_core.experiments.privacy_attack.rows import PRIOR_ALONE, AttackRow
from fedfisher_core.reporting.formats import Table, in_words, plural
from fedfisher_core.reporting.measure import (
    Measure,
    PairedDifference,
    Repeated,
    gather,
    paired_difference,
    with_most_seeds,
)

_HEADER = ("method", "the attacker has", "attack, %", "distance", "accuracy, %", "seconds")


@dataclass(frozen=True)
class Finding:
    """The attack accuracies of two cases, paired by target label and seed.

    Args:
        more: the case with the higher mean.
        difference: attack accuracy of `more` less that of `less`, a fraction.
    """

    more: str
    less: str
    difference: PairedDifference


@dataclass(frozen=True)
class Block:
    """What was measured on one data set and network at one privacy budget.

    Args:
        attacks: rows of the methods, at least one.
        bounds: rows of the data set's floors and ceilings.
    """

    attacks: Sequence[AttackRow]
    bounds: Sequence[AttackRow]

    @property
    def title(self) -> str:
        """Data set, network and budget."""
        return titled(self.attacks[0], ", ε = ")

    @property
    def rows(self) -> list[AttackRow]:
        """Methods, then floors and ceilings."""
        return [*self.attacks, *self.bounds]

    @property
    def summaries(self) -> list[Repeated[AttackRow]]:
        """Methods by falling attack accuracy, then floors and ceilings, over target labels and seeds."""
        return sorted(summarise(self.rows), key=lambda one: (one.row.reference, -_mean(one)))

    @property
    def findings(self) -> list[Finding]:
        """How the cases compare."""
        return compare_cases(self.attacks)

    @property
    def meaning(self) -> str:
        """Say what the attack means for a person whose images a client holds."""
        summaries = summarise(self.attacks)
        whole = with_most_seeds({place: len(one.rows) for place, one in enumerate(summaries)})
        found = sorted((summaries[place] for place in whole), key=_mean)
        least, most = found[0], found[-1]
        said = (
            "Of 100 images that a server makes of one client’s upload, a classifier recognises what the client holds "
            f"in {_of_100(most)} with {in_words(most.row.attack)}"
        )
        if least is not most:
            said += f" and in {_of_100(least)} with {in_words(least.row.attack)}"
        floors = [one for one in summarise(self.bounds) if one.row.case == PRIOR_ALONE]
        without = [f"Of images that it draws without any upload it does so in {_of_100(one)}." for one in floors]
        intervals = ["Brackets hold 95 % intervals over trials."] if interval_over_trials(most) else []
        return " ".join([f"{said}.", *without, *intervals])

    @property
    def trials(self) -> int:
        """Number of pairs of target label and seed."""
        return len({(row.target_label, row.seed) for row in self.attacks})


def _of_100(summary: Repeated[AttackRow]) -> str:
    interval = interval_over_trials(summary)
    if interval is None:
        return f"{100 * _mean(summary):.0f}"
    # A share can't lie beyond its bounds, and an interval may.
    low, high = max(interval[0], 0.0), min(interval[1], 1.0)
    return f"{100 * _mean(summary):.0f} ({100 * low:.0f} to {100 * high:.0f})"


def titled(row: AttackRow, epsilon: str) -> str:
    """Write data set, network and budget, if there is one, after `epsilon`."""
    return f"{row.dataset}, {row.model}" + ("" if row.epsilon is None else f"{epsilon}{row.epsilon:g}")


def blocks(rows: Sequence[AttackRow]) -> list[Block]:
    """Gather rows by data set, network and privacy budget, in the order of the rows."""
    attacks = [row for row in rows if not row.reference]
    return [
        Block(own, [row for row in rows if row.reference and row.dataset == dataset])
        for (dataset, *_), own in gather(attacks, lambda row: (row.dataset, row.model, row.epsilon)).items()
    ]


def summarise(rows: Sequence[AttackRow]) -> list[Repeated[AttackRow]]:
    """Gather rows by data set, network, privacy budget and method, in the order of the rows; floors and ceilings last.

    The rows of each differ in target label and seed.
    """
    ordered = sorted(rows, key=lambda row: row.reference)
    groups = gather(ordered, lambda row: (row.dataset, row.model, row.epsilon, row.method, row.case, row.reference))
    return [Repeated(group) for group in groups.values()]


def compare_cases(rows: Sequence[AttackRow]) -> list[Finding]:
    """Compare every two cases of one data set, network and privacy budget, the higher mean first.

    Methods that share a case share its attacks; the first of them stands for all.
    """
    cases: dict[str, Repeated[AttackRow]] = {}
    for summary in summarise([row for row in rows if not row.reference]):
        cases.setdefault(summary.row.case, summary)
    ordered = sorted(cases.values(), key=_mean, reverse=True)
    pairs = [(more, less) for place, more in enumerate(ordered) for less in ordered[place + 1 :]]
    return [
        Finding(more.row.case, less.row.case, difference)
        for more, less in pairs
        if (difference := paired_difference(_by_trial(more), _by_trial(less))) is not None
    ]


def _mean(summary: Repeated[AttackRow]) -> float:
    return sum(summary.values("attack_accuracy")) / len(summary.rows)


def interval_over_trials(summary: Repeated[AttackRow]) -> tuple[float, float] | None:
    """Find the 95 % interval of the attack accuracy over target labels and seeds; None for a single trial."""
    by_trial = _by_trial(summary)
    mean = paired_difference(by_trial, dict.fromkeys(by_trial, 0.0))
    return None if mean is None else mean.interval


def _by_trial(summary: Repeated[AttackRow]) -> dict[tuple[int, int], float]:
    return {(row.target_label, row.seed): row.attack_accuracy for row in summary.rows}


def attack_tables(rows: Sequence[AttackRow]) -> list[Table]:
    """Write means and deviations over target labels and seeds, a table for each data set, network and budget."""
    return [_table(block) for block in blocks(rows)]


def _table(block: Block) -> Table:
    summaries = block.summaries
    title = f"{titled(block.attacks[0], ', epsilon ')}, {plural(block.trials, 'trial')}"
    return Table(title=title, header=_HEADER, lines=[_line(one) for one in summaries], words=2)


def _line(summary: Repeated[AttackRow]) -> tuple[str, ...]:
    return (
        summary.row.method,
        summary.row.case,
        _percent(summary.values("attack_accuracy")),
        _plain(summary.values("feature_distance")),
        _percent(summary.values("accuracy")),
        _plain(summary.values("attack_seconds")),
    )


def _percent(values: Sequence[float]) -> str:
    return Measure.of(values).percent() if values else ""


def _plain(values: Sequence[float]) -> str:
    return f"{Measure.of(values).mean:.2f}" if values else ""
