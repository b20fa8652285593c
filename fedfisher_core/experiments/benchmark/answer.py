"""The answer of a benchmark: methods by their mean over settings, compared two by two, seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from fedfisher_core.experiments.benchmark.rows import Role, method_of
from fedfisher_core.experiments.benchmark.summary import (
    MethodSummary,
    OverviewLine,
    Setting,
    SettingSummary,
    overview,
)
from fedfisher_core.reporting.formats import FEDFISHER, MINUS, OURS, in_words, percent, plural
from fedfisher_core.reporting.measure import (
    BASELINE,
    PairedDifference,
    mean_by_seed,
    of_most_runs,
    paired_difference,
)
from fedfisher_core.reporting.ranks import holm

LEVEL = 0.05
"""Probability that tests find a difference between any two methods of a page that do not differ."""

_MOST_NAMED = 3
_MOST_DIGITS = 4


@dataclass(frozen=True)
class Pair:
    """Two methods in one setting, seed by seed: the same seed means the same clients.

    Args:
        higher: label of the method with the higher mean over the common seeds; the first if both tie.
        difference: accuracy of `higher` less that of `lower`.
        p_value: of Student's paired test, corrected by Holm's procedure for all tests of a page; None without a test.
    """

    setting: Setting
    higher: str
    lower: str
    difference: PairedDifference
    p_value: float | None

    @property
    def differs(self) -> bool:
        """Whether a test shows that the methods differ."""
        return self.p_value is not None and self.p_value <= LEVEL


def compare_pairs(summaries: Sequence[SettingSummary]) -> tuple[Pair, ...]:
    """Compare every two methods that make one network and share a seed, by setting, then in the order of the methods.

    Holm's procedure corrects for all tests of all settings together.
    """
    found = [
        (summary.setting, *_ordered(one, other))
        for summary in summaries
        for one, other in combinations(summary.compared, 2)
        if set(one.seeds) & set(other.seeds)
    ]
    p_values = [difference.p_value for *_, difference in found]
    corrected = iter(holm([p_value for p_value in p_values if p_value is not None]))
    return tuple(
        Pair(setting, higher, lower, difference, p_value=None if p_value is None else next(corrected))
        for (setting, higher, lower, difference), p_value in zip(found, p_values, strict=True)
    )


def _ordered(one: MethodSummary, other: MethodSummary) -> tuple[str, str, PairedDifference]:
    first, second = ({row.seed: row.accuracy for row in method.rows} for method in (one, other))
    difference = paired_difference(first, second)
    assert difference is not None
    if difference.mean >= 0:
        return one.method, other.method, difference
    return other.method, one.method, -difference


@dataclass(frozen=True)
class Decided:
    """What tests show within one setting.

    Args:
        above: for each method that is shown to be more accurate than others, the labels of those.
    """

    setting: Setting
    above: dict[str, tuple[str, ...]]
    tests: int


def decided(pairs: Sequence[Pair]) -> list[Decided]:
    """Gather the differences that tests show, by setting; settings without one are left out."""
    found = []
    for setting in dict.fromkeys(pair.setting for pair in pairs):
        own = [pair for pair in pairs if pair.setting == setting]
        shown = [pair for pair in own if pair.differs]
        above = {
            method: tuple(pair.lower for pair in shown if pair.higher == method)
            for method in dict.fromkeys(pair.higher for pair in shown)
        }
        if above:
            found.append(Decided(setting, above, sum(pair.p_value is not None for pair in own)))
    return found


@dataclass(frozen=True)
class Compared:
    """One method less another: the means over settings and seeds in which both ran, seed by seed; see `of_most_runs`.

    Args:
        num_settings: over which the means are.
    """

    num_settings: int
    difference: PairedDifference


@dataclass(frozen=True)
class Standing:
    """A method over all settings of a page.

    Args:
        mean: of its accuracy, over the seeds that all its settings have; None without such a seed.
        above_baseline: compared with FedAvg; None for FedAvg, and without a common seed and setting.
        behind_leader: the leader compared with it; None for the leader, and without a common seed and setting.
    """

    line: OverviewLine
    mean: PairedDifference | None
    above_baseline: Compared | None
    behind_leader: Compared | None

    @property
    def method(self) -> str:
        """Its label."""
        return self.line.method

    @property
    def name(self) -> str:
        """Its label in words."""
        return in_words(self.method)

    @property
    def num_settings(self) -> int:
        """How many settings it ran in."""
        return len(self.line.present)


def standings(summaries: Sequence[SettingSummary]) -> list[Standing]:
    """Compare all methods over settings: by role, those with most settings and seeds first, then by falling accuracy.

    The first of those that make one network, and do not stand apart by their bits, leads the others of them, if any
    method does.
    """
    lines = overview(summaries)
    baseline = next((line for line in lines if line.method == BASELINE), None)
    of_one = sorted((line for line in lines if line.role is Role.ONE_NETWORK), key=lambda line: line.apart)
    leader = of_one[0] if of_one else None
    return [
        Standing(
            line,
            mean=paired_difference(means, dict.fromkeys(means, 0.0)),
            above_baseline=_compared(line, baseline),
            behind_leader=_compared(leader, line),
        )
        for line in lines
        for means in (mean_by_seed([_by_seed(line, place) for place in _places(line)]),)
    ]


def _places(line: OverviewLine) -> list[int]:
    return [place for place, cell in enumerate(line.cells) if cell is not None]


def _by_seed(line: OverviewLine, place: int) -> Mapping[int, float]:
    cell = line.cells[place]
    return {} if cell is None else {row.seed: row.accuracy for row in cell.rows}


def _compared(one: OverviewLine | None, other: OverviewLine | None) -> Compared | None:
    if one is None or other is None or one is other:
        return None
    common = [place for place in _places(one) if other.cells[place] is not None]
    kept = of_most_runs([(_by_seed(one, place), _by_seed(other, place)) for place in common])
    common = [common[place] for place in kept]
    ours, others = (mean_by_seed([_by_seed(line, place) for place in common]) for line in (one, other))
    difference = paired_difference(ours, others)
    return None if difference is None else Compared(len(common), difference)


def at_equal_bits(found: Sequence[Standing]) -> list[Standing]:
    """Choose the methods of one network that do not stand apart by their bits, in their order; all, if each does."""
    of_one = [one for one in found if one.line.role is Role.ONE_NETWORK]
    return [one for one in of_one if not one.line.apart] or of_one


def answer(found: Sequence[Standing]) -> list[str]:
    """Write what leads by how much, and what FedFisher and this project's own methods do; no text without a network.

    A method leads where its intervals to all others exclude 0, each over the seeds and of its pair alone. Methods that
    have a single seed in common with it have no interval, and are named. Methods that a budget of
    their own lets send more than FedAvg stand apart.
    """
    ranked = at_equal_bits(found)
    if not ranked:
        return []
    costly = [one for one in found if one.line.role is Role.ONE_NETWORK and one not in ranked]
    leader = method_of(ranked[0].line.present[0].row)
    followers = []
    for wanted in (FEDFISHER, OURS):
        known = [one for one in ranked if method_of(one.line.present[0].row) in wanted]
        if known and leader not in wanted:
            followers.append(_place(known[0], ranked))
    if not followers and ranked[0].above_baseline is not None and len(ranked) > 2:
        followers.append(f"{ranked[0].name} is {to_other(ranked[0].above_baseline.difference, BASELINE)}")
    return [
        _lead(ranked),
        *([f"{'; '.join(followers)}."] if followers else []),
        *([_beyond(costly)] if costly else []),
    ]


def _beyond(costly: Sequence[Standing]) -> str:
    # Those with most settings and seeds come first, by falling accuracy.
    best = costly[0]
    assert best.line.upload_ratio is not None
    times = f"{best.line.upload_ratio:.3g} times FedAvg's bits"
    accuracy = f"{percent(best.line.mean('accuracy'), 1)} %"
    if len(costly) == 1:
        return f"{best.name} sends over 5 % more than FedAvg and stands apart: {accuracy} at {times}."
    higher = any(one.line.mean("accuracy") > best.line.mean("accuracy") for one in costly)
    which = "Of those with most settings and seeds" if higher else "Of these"
    return (
        f"{len(costly)} methods send over 5 % more than FedAvg and stand apart. {which}, {best.name} has the highest "
        f"mean: {accuracy} at {times}."
    )


def _lead(ranked: Sequence[Standing]) -> str:
    top = ranked[0]
    compared = [(one, one.behind_leader.difference) for one in ranked[1:] if one.behind_leader is not None]
    accuracy = f"{percent(top.line.mean('accuracy'), 1)} %"
    where = f"over {plural(top.num_settings, 'setting')}"
    if len(ranked) == 1:
        return f"**{top.name}** is the only method that returns one network. Its mean accuracy {where} is {accuracy}."
    if not compared:
        alone = "No other method ran in one of its settings with one of its seeds."
        return f"**{top.name}** has a mean accuracy of {accuracy} {where}. {alone}"
    second, difference = compared[0]
    apart = f"{to_other(difference, second.method)}, the next{_in_part(second, top)}"
    # Those that lack settings or seeds come after the others, even with a higher mean.
    higher = any(one.line.mean("accuracy") > top.line.mean("accuracy") for one in ranked[1:])
    highest = f"the highest mean{' of those with most settings and seeds' if higher else ''}"
    if difference.n == 1:
        return f"**{top.name}** has {highest} {where}, {accuracy}. It is {apart}; one seed shows no lead."
    tested = [(one.name, other.interval) for one, other in compared if other.interval is not None]
    level = [name for name, (low, high) in tested if low <= 0 <= high]
    above = [f"{one.name}{_in_part(one, top)}" for one, other in compared if other.interval and other.interval[1] < 0]
    untested = [one.name for one, other in compared if other.n == 1]
    alike = [one.name for one, other in compared if other.n > 1 and other.interval is None]
    uncompared = [one.name for one in ranked[1:] if one.behind_leader is None]
    alone = f"; it has no setting and seed in common with {_listed(uncompared)}" if uncompared else ""
    alone = f"; a single seed in common shows nothing of {_listed(untested)}{alone}" if untested else alone
    unknown = [one for one in ranked[1:] if one.name in (*untested, *uncompared)]
    better = any(one.line.mean("accuracy") > top.line.mean("accuracy") for one in unknown)
    if not level and not alike and not above and not better:
        others = f" all {len(tested)} other methods" if not unknown else f" {len(tested)} of {len(ranked) - 1} methods"
        others = others if len(tested) > 1 else ""
        return f"**{top.name} leads{others}**: {where} its mean accuracy, {accuracy}, is {apart}{alone}."
    some = "" if level in ([second.name], []) else f"; its interval to {_listed(level)} includes 0"
    some += f"; the difference from {_listed(alike)} is the same in every seed, and has no interval" if alike else ""
    some += f"; {_listed(above)} {'is' if len(above) == 1 else 'are'} above it in the seeds in common" if above else ""
    return f"**No method leads**: {where} {top.name} has {highest}, {accuracy}, {apart}{some}{alone}."


def _place(one: Standing, ranked: Sequence[Standing]) -> str:
    # Methods that lack settings or seeds stand after the others, whatever their accuracy.
    rows = [sum(len(cell.rows) for cell in standing.line.present) for standing in (one, ranked[0])]
    name, told = one.name, [f"number {ranked.index(one) + 1} of {len(ranked)}"]
    if rows[0] < rows[1]:
        name, told = f"{one.name}, which lacks settings or seeds,", []
    # Of the second, the first sentence says how far it is behind.
    if one.behind_leader is not None and one is not ranked[1]:
        told.append(to_other(-one.behind_leader.difference, ranked[0].method) + _in_part(one, ranked[0]))
    if one.above_baseline is not None and ranked[0].method != BASELINE:
        told.append(to_other(one.above_baseline.difference, BASELINE))
    return f"{name} is {', '.join(told)}" if told else f"{one.name} lacks settings or seeds"


def _in_part(one: Standing, top: Standing) -> str:
    """Say in how many settings a method is compared with the leader, where these are not all of the leader's."""
    if one.behind_leader is None or one.behind_leader.num_settings == top.num_settings:
        return ""
    return f" (compared in {plural(one.behind_leader.num_settings, 'setting')})"


def to_other(difference: PairedDifference, other: str) -> str:
    """Say by how many points one method is above or below another, with the 95 % interval over seeds."""
    if difference.mean < 0:
        return f"{in_points(-difference)} below {in_words(other)}"
    return f"{in_points(difference)} above {in_words(other)}"


def in_points(difference: PairedDifference) -> str:
    """Write a difference of fractions in points, with its 95 % interval over seeds if it has one."""
    interval = difference.interval
    # As many digits as show on which side of 0 an interval ends.
    digits = 1
    if interval is not None and 0 not in interval:
        nearest = 100 * min(map(abs, interval))
        digits = next((one for one in range(1, _MOST_DIGITS) if round(nearest, one) > 0), _MOST_DIGITS)
    bounds = "" if interval is None else f" ({100 * interval[0]:z.{digits}f} to {100 * interval[1]:z.{digits}f})"
    return f"{100 * difference.mean:z.{digits}f} points{bounds}".replace("-", MINUS)


def _listed(names: Sequence[str]) -> str:
    # A name may hold commas.
    comma = "; " if any("," in name for name in names) else ", "
    if len(names) > _MOST_NAMED:
        return f"{comma.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
    return " and ".join([comma.join(names[:-1]), names[-1]] if len(names) > 1 else names)


def setting_names(settings: Sequence[Setting]) -> dict[Setting, str]:
    """Name each setting by what distinguishes it from the others; a single setting has its whole label."""
    if len(settings) == 1:
        return {settings[0]: settings[0].label}
    parts = [_parts(setting) for setting in settings]
    varying = [index for index, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    return {
        setting: ", ".join(own[index] for index in varying if own[index])
        for setting, own in zip(settings, parts, strict=True)
    }


def _parts(setting: Setting) -> tuple[str, ...]:
    alpha = "" if setting.alpha is None else f"α = {setting.alpha:g}"
    clients, rounds = plural(setting.num_clients, "client"), plural(setting.num_rounds, "round")
    training = (setting.objective, setting.server_optimiser)
    federation = (setting.dataset, setting.model, *training, clients, rounds, setting.partition, alpha)
    return (*federation, setting.shift or "no shift")
