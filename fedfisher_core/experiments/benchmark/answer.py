"""The answer of a benchmark in three sentences: who wins, by how much and how surely, at what cost."""

import statistics
from collections import Counter
from collections.abc import Sequence

from fedfisher_core.experiments.benchmark.leads import Lead
from fedfisher_core.experiments.benchmark.pairs import Pair
from fedfisher_core.experiments.benchmark.summary import MethodSummary, Setting, SettingSummary
from fedfisher_core.reporting.formats import megabits, percent, plural, points, seconds
from fedfisher_core.reporting.measure import BASELINE, gather

_MOST_NAMED = 3
_MOST_COSTED = 2


def answer(summaries: Sequence[SettingSummary], leads: Sequence[Lead], tests: int) -> list[str]:
    """Say what the numbers show, and claim a lead only where tests show one.

    Args:
        summaries: the settings of a page.
        leads: the most accurate method of each.
        tests: how many tests the intervals are corrected for.

    Returns:
        Three sentences in the little markup of notes; none for a page without a method that makes one network.
    """
    return [_who(leads), _by_how_much(leads, tests), _at_what_cost(summaries, leads)] if leads else []


def setting_names(settings: Sequence[Setting]) -> dict[Setting, str]:
    """Name each setting by what sets it apart from the others.

    Args:
        settings: of a page.

    Returns:
        Short names; the whole label for a setting alone.
    """
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


def _who(leads: Sequence[Lead]) -> str:
    if not any(lead.pairs or lead.untested for lead in leads):
        return f"{_named(leads[0].top.method)} is the only method of one network, and is compared with none."
    if not any(lead.tested for lead in leads):
        return f"No method leads, as a test needs two seeds: the most accurate is {_tops(leads, len(leads))}."
    text = _who_of_one(leads[0]) if len(leads) == 1 else _who_of_many(leads)
    untested = [_named(label) for label in dict.fromkeys(label for lead in leads for label in lead.untested)]
    beside = f"; no test compares it with {_listed(untested)}" if untested else ""
    return f"{text}{beside}."


def _who_of_one(lead: Lead) -> str:
    top = _named(lead.top.method)
    if lead.leads:
        return f"{top} leads: tests tell it apart from each of the {len(lead.tested)} methods that it is compared with"
    others = _listed([_named(label) for label in lead.not_below])
    return f"No method leads: the most accurate is {top}, but no test shows it to be above {others}"


def _who_of_many(leads: Sequence[Lead]) -> str:
    tested = [lead for lead in leads if lead.tested]
    count = len(tested)
    where = f"{count} settings" if count == len(leads) else f"{count} of {len(leads)} settings, those that have a test"
    won, level = [lead for lead in tested if lead.leads], [lead for lead in tested if not lead.leads]
    if not level:
        return f"In each of the {where} one method leads: {_tops(won, count)}"
    nearest = _counted([lead.not_below[0] for lead in level], count)
    open_ = (
        f"the most accurate is {_tops(level, count)}, but each time no test shows it to be above another, the nearest "
        f"of which is {nearest}"
    )
    if not won:
        return f"No method leads in any of the {where}: {open_}"
    return f"One method leads in {len(won)} of {where}, {_tops(won, count)}; in the others {open_}"


def _tops(leads: Sequence[Lead], total: int) -> str:
    """Name the most accurate methods."""
    return _counted([lead.top.method for lead in leads], total)


def _counted(labels: Sequence[str], total: int) -> str:
    """Name methods, with their numbers of settings unless one of them is that of all."""
    counts = Counter(labels)
    if len(counts) == 1 and len(labels) == total:
        return _named(labels[0])
    return _listed([f"{_named(label)} in {count}" for label, count in counts.most_common()])


def _by_how_much(leads: Sequence[Lead], tests: int) -> str:
    nearest = [(lead.setting, lead.nearest) for lead in leads]
    pairs = [(setting, pair) for setting, pair in nearest if pair is not None]
    if not pairs:
        return f"The highest mean accuracy is {_range([lead.top.accuracy.mean for lead in leads])} %."
    tested = [(setting, pair) for setting, pair in pairs if pair.test is not None]
    if not tested:
        apart = _range([pair.difference.mean for _, pair in pairs])
        return f"The most accurate method and the nearest to it are {apart} points apart; one seed gives no interval."
    seeds = sorted({pair.difference.n for _, pair in tested})
    corrected = f"over {' or '.join(map(str, seeds))} seeds, corrected for {plural(tests, 'test')}"
    if len(pairs) <= _MOST_NAMED:
        names = setting_names([lead.setting for lead in leads])
        several = len(leads) > 1
        tops = {lead.setting: lead.top.method for lead in leads}
        apart = _listed([_apart(pair, tops[setting], names[setting] if several else "") for setting, pair in tested])
        return f"The most accurate method and the nearest to it are {apart} apart: 95 % intervals {corrected}."
    intervals = [pair.test.interval for _, pair in tested if pair.test is not None]
    lowest, highest = min(low for low, _ in intervals), max(high for _, high in intervals)
    return (
        f"The most accurate method and the nearest to it are {_range([pair.difference.mean for _, pair in tested])} "
        f"points apart; the 95 % intervals, {corrected}, reach from {points(lowest)} to {points(highest)}."
    )


def _apart(pair: Pair, top: str, where: str) -> str:
    assert pair.test is not None
    low, high = pair.test.interval
    place = f"{where}: " if where else ""
    return (
        f"{percent(pair.difference.mean)} points [{points(low)}, {points(high)}] "
        f"({place}{_named(top)} over {_named(pair.other(top))})"
    )


def _at_what_cost(summaries: Sequence[SettingSummary], leads: Sequence[Lead]) -> str:
    often = Counter(lead.top.method for lead in leads).most_common(_MOST_COSTED)
    methods = gather([method for summary in summaries for method in summary.methods], lambda method: method.method)
    return "; ".join(_cost(methods[label], methods.get(BASELINE, [])) for label, _ in often) + "."


def _cost(own: Sequence[MethodSummary], baseline: Sequence[MethodSummary]) -> str:
    beside = _in_settings_of(own, baseline)
    # Ratios are of settings that have both.
    own = _in_settings_of(beside, own) or own
    label, server = _named(own[0].method), _mean(own, "server_seconds")
    looks = ", with a look at the server’s validation images" if any(one.uses_validation for one in own) else ""
    bits, client = _mean(beside, "upload_bits"), _mean(beside, "client_seconds")
    if own[0].method == BASELINE or not bits or not client:
        return (
            f"{label} uploads {megabits(_mean(own, 'upload_bits'))} Mbit, and takes the clients "
            f"{seconds(_mean(own, 'client_seconds'))} s and the server {seconds(server)} s{looks}"
        )
    return (
        f"{label} uploads {_mean(own, 'upload_bits') / bits:.2f} times what {_named(BASELINE)} does, and takes the "
        f"clients {_mean(own, 'client_seconds') / client:.2f} times as long and the server {seconds(server)} s, where "
        f"{_named(BASELINE)} takes {seconds(_mean(beside, 'server_seconds'))} s{looks}"
    )


def _in_settings_of(others: Sequence[MethodSummary], methods: Sequence[MethodSummary]) -> list[MethodSummary]:
    settings = {Setting.of(method.row) for method in others}
    return [method for method in methods if Setting.of(method.row) in settings]


def _mean(methods: Sequence[MethodSummary], field: str) -> float:
    return statistics.fmean(method.measure(field).mean for method in methods) if methods else 0.0


def _range(fractions: Sequence[float]) -> str:
    """Write the smallest and the largest of some fractions in per cent."""
    return " to ".join(dict.fromkeys([percent(min(fractions)), percent(max(fractions))]))


def _named(label: str) -> str:
    return f"`{label}`"


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMED:
        names = [*names[:_MOST_NAMED], plural(len(names) - _MOST_NAMED, "other")]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
