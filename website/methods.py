"""A page a method: its docstring, uploads, bits and settings, and how it did in the committed reports."""

import inspect
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overview import above_baseline, in_points, mean_of, with_interval
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.experiments.leaderboard.entries import BenchmarkReport, Entry, make_entries
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.methods.method import Method, methods
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import BASELINE, PairedDifference, gather, paired_difference
from fedfisher_core.reporting.rows import RESULTS, experiment_of_rows, read_rows
from website.markup import escaped, formulas
from website.settings import tables

_SECTION = re.compile(r"^(Args|Returns|Raises):$", re.MULTILINE)
_NOT_ATTACKED = "No committed report attacks it."
TRIAL = "privacy_demo"
"""A report that shows how the attack works, too small for conclusions."""


@dataclass(frozen=True)
class InSetting:
    """One method in one setting, with FedAvg's entry there."""

    own: Entry
    difference: PairedDifference
    bit_ratio: float


def pages(reports: Path, benchmarks: Sequence[BenchmarkReport]) -> dict[str, str]:
    """Write the page of each method, by the method's name.

    Args:
        reports: the folder of all reports.
        benchmarks: those that compare methods.
    """
    entries = make_entries(benchmarks)
    attacks = [
        (path.parent.name, row)
        for path in sorted(reports.glob(f"*/{RESULTS}"))
        if experiment_of_rows(path) == "privacy_attack" and path.parent.name != TRIAL
        for row in read_rows(path, AttackRow)
    ]
    above = {(report.name, one.other): one.difference for report in benchmarks for one in above_baseline([report])}
    next_to_fedavg = _next_to_baseline(entries)
    return {
        name: "\n\n".join(_page(methods.get(name), entries, next_to_fedavg, above, attacks)) + "\n" for name in methods
    }


def listed() -> str:
    """List all methods with the first line of their docstrings, for the page of methods."""
    lines = [f"| [{name}](methods/{name}.md) | {formulas(methods.get(name).summary)} |" for name in methods]
    return "\n".join(["## All methods", "", "| method | what it does |", "| --- | --- |", *lines]) + "\n"


def _page(
    method: Method,
    entries: Sequence[Entry],
    next_to_fedavg: Mapping[str, Sequence[InSetting]],
    above: Mapping[tuple[str, str], PairedDifference],
    attacks: Sequence[tuple[str, AttackRow]],
) -> Iterator[str]:
    own = [one for one in entries if one.method == method.name]
    text, *_ = _SECTION.split(inspect.getdoc(method.function) or "")
    yield f"# {method.name}"
    yield from map(formulas, re.split(r"\n\s*\n", text.strip()))
    yield f"Paper or code that it follows: <{method.reference}>"
    yield "## What a client sends"
    yield "\n".join(
        [
            "| statistic | the server needs | what it is |",
            "| --- | --- | --- |",
            *(
                f"| `{one.name}` | {'each client’s own' if method.views[one.name] == 'each' else 'the sum'} | "
                f"{formulas((inspect.getdoc(one) or '').partition(chr(10))[0])} |"
                for one in method.uploads
            ),
        ]
    )
    yield _secure(method)
    yield "## Bits"
    yield _bits(next_to_fedavg.get(method.name, ()), method.name)
    yield "## Settings"
    yield tables(method.settings)
    yield "## Where it leads and where it fails"
    yield from _standing(own, next_to_fedavg.get(method.name, ()), above)
    yield "## What the attack finds"
    yield _attacked([(report, row) for report, row in attacks if row.method_settings.get("method") == method.name])


def _secure(method: Method) -> str:
    if method.sums is not None:
        return (
            "It is written in sums, so that it runs with [secure aggregation](../communication.md#secure-aggregation)."
        )
    return "It is refused with [secure aggregation](../communication.md#secure-aggregation)."


def _next_to_baseline(entries: Sequence[Entry]) -> dict[str, list[InSetting]]:
    """Pair entries with FedAvg's in the same setting, by method; budgets of a setting share one FedAvg."""
    found: dict[str, list[InSetting]] = {}
    for column in gather(entries, lambda one: (one.report, _setting(one))).values():
        baseline = next((one for one in column if one.method == BASELINE), None)
        if baseline is None:
            continue
        for one in column:
            difference = paired_difference(one.accuracy_by_seed, baseline.accuracy_by_seed)
            if difference is not None:
                ratio = one.upload_bits / baseline.upload_bits
                found.setdefault(one.method, []).append(InSetting(one, difference, ratio))
    return found


def _setting(entry: Entry) -> Setting:
    return Setting(
        dataset=entry.dataset,
        model=entry.model,
        partition=entry.partition,
        alpha=entry.alpha,
        num_clients=entry.num_clients,
        num_rounds=entry.num_rounds,
        shift=entry.shift,
        objective=entry.objective,
        server_optimiser=entry.server_optimiser,
        cohort=entry.cohort,
        unseen_clients=entry.unseen_clients,
    )


def _bits(next_to_fedavg: Sequence[InSetting], name: str) -> str:
    if not next_to_fedavg:
        return f"No committed report has a row of `{name}` next to FedAvg."
    words = {"fedavg": "what FedAvg sends (the default)", "none": "none", None: "not kept"}
    lines = ["| budget | bits / FedAvg, least to most | settings |", "| --- | --- | --- |"]
    for budget, own in gather(next_to_fedavg, lambda one: one.own.wire_budget).items():
        ratios = [one.bit_ratio for one in own]
        span = " to ".join(dict.fromkeys(f"{one:.2f}" for one in (min(ratios), max(ratios))))
        lines.append(f"| {words.get(budget, budget)} | {span} | {len(own)} |")
    return "\n".join(lines)


def _standing(
    own: Sequence[Entry], next_to_fedavg: Sequence[InSetting], above: Mapping[tuple[str, str], PairedDifference]
) -> Iterator[str]:
    if not own:
        yield "No committed report has it under its own name."
        return
    ranked = [one for one in own if one.rank is not None]
    reports = gather(own, lambda one: one.report)
    yield f"It ran in {plural(len(own), 'setting')} of {plural(len(reports), 'report')}. " + _overall(
        ranked, next_to_fedavg
    )
    if len(next_to_fedavg) > 1 and own[0].method != BASELINE:
        best, worst = (pick(next_to_fedavg, key=lambda one: one.difference.mean) for pick in (max, min))
        yield f"- Its best setting, by points above FedAvg: {_there(best)}\n- Its worst: {_there(worst)}"
    yield (
        "The numbers of a report are means over its settings. Brackets hold 95 % intervals over seeds, of the pair "
        "alone. Rows under other labels, which have other settings of the method, are left out. Reports may share "
        "clients, so that their numbers are not independent."
    )
    lines = ["| report | settings | points above FedAvg | mean rank |", "| --- | --- | --- | --- |"]
    for report, entries in reports.items():
        difference = above.get((report, own[0].method))
        places = [(one.rank, one.num_ranked) for one in entries if one.rank is not None]
        rank = (
            f"{statistics.fmean(rank for rank, _ in places):.1f} of {max(count for _, count in places)}"
            if places
            else "not ranked"
        )
        points = "–" if difference is None else with_interval(in_points(difference))
        lines.append(f"| [{report}](../../reports/{report}/index.html) | {len(entries)} | {points} | {rank} |")
    yield "\n".join(lines)


def _overall(ranked: Sequence[Entry], next_to_fedavg: Sequence[InSetting]) -> str:
    sentences = []
    if next_to_fedavg and next_to_fedavg[0].own.method != BASELINE:
        higher = sum(one.difference.mean > 0 for one in next_to_fedavg)
        mean = 100 * statistics.fmean(one.difference.mean for one in next_to_fedavg)
        sentences.append(
            f"Its mean accuracy is above FedAvg’s in {higher} of the {len(next_to_fedavg)} that have FedAvg too. "
            f"The mean difference over these is {mean:.1f} points. No interval is given, as their seeds differ."
        )
    if ranked:
        first = sum(one.rank == 1 for one in ranked)
        sentences.append(
            f"It is ranked in {plural(len(ranked), 'setting')}, and has the highest mean accuracy of one network in "
            f"{first}. Its mean rank is {statistics.fmean(one.rank or 0.0 for one in ranked):.1f}."
        )
    return " ".join(sentences)


def _there(one: InSetting) -> str:
    report = one.own.report
    label = escaped(_setting(one.own).label)
    return f"{with_interval(in_points(one.difference))} points, [{report}](../../reports/{report}/index.html), {label}."


def _attacked(rows: Sequence[tuple[str, AttackRow]]) -> str:
    if not rows:
        return _NOT_ATTACKED
    lines = ["| report | upload | epsilon | recognised, % | trials |", "| --- | --- | --- | --- | --- |"]
    for (report, label, epsilon), own in gather(rows, lambda one: (one[0], one[1].attack, one[1].epsilon)).items():
        found = mean_of({(row.target_label, row.seed): row.attack_accuracy for _, row in own})
        budget = "none" if epsilon is None else f"{epsilon:.3g}"
        lines.append(
            f"| [{report}](../../reports/{report}/index.html) | {escaped(label)} | {budget} | "
            f"{with_interval(in_points(found))} | {found.n} |"
        )
    about = (
        "The share of the attack’s images that a classifier recognises as what the client holds. [Privacy]"
        "(../privacy.md) says what the attack is. Brackets hold 95 % intervals over trials."
    )
    return f"{about}\n\n" + "\n".join(lines)
