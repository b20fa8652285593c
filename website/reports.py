"""A card a report, and how to make each again, from result files and settings files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedfisher_core.experiments.benchmark.algorithms import as_algorithms
from fedfisher_core.experiments.benchmark.answer import answer, standings
from fedfisher_core.experiments.benchmark.rows import Row, sorted_rows
from fedfisher_core.experiments.benchmark.summary import summarise
from fedfisher_core.experiments.contract import DEFAULT, experiments
from fedfisher_core.experiments.leaderboard.ranking import MeanRanks
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.rows import RESULTS, experiment_of_rows
from website.places import ROOT

_SECONDS = ("client_train_seconds", "client_encode_seconds", "server_seconds", "attack_seconds", "gan_seconds")
_TRACKS = {"best_effort": "Best effort", "as_published": "As published"}
_EXPERIMENTS = {
    DEFAULT: "Other benchmarks",
    "privacy_attack": "Privacy attacks",
    "two_layer": "Theory",
    "fedfish_toy": "A toy regression",
}

_ABOUT_MINUTES = (
    "A command writes its report to the folder `results/NAME`. It needs the data sets that the settings file names: "
    "[where data comes from](command.md#where-data-comes-from) says how to get them. A command that was stopped goes "
    "on where it was.\n\nMinutes are sums of the seconds that a report’s rows record: training, statistics and "
    "encoding of all clients, one after another, and all servers, or the attack and its prior. They are on the clock "
    "of a machine with two cores, mostly while other work ran. To decode data and to measure networks takes more."
)


@dataclass(frozen=True)
class Report:
    """A committed report.

    Args:
        config: its settings file.
        group: heading above its card.
        finding: one sentence, in Markdown.
        about: data sets, networks and size, in words.
        minutes: of work that its rows record; None where they record none.
    """

    name: str
    config: str
    title: str
    group: str
    finding: str
    about: str
    picture: str | None
    minutes: float | None


def find_reports(folder: Path) -> list[Report]:
    """Read every report of a folder, by its name."""
    return [_read(path) for path in sorted(folder.glob(f"*/{RESULTS}"))]


def _read(path: Path) -> Report:
    name, experiment = path.parent.name, experiment_of_rows(path) or DEFAULT
    rows = experiments.get(experiment).read(path)
    config = f"configs/{name}.yaml" if (ROOT / f"configs/{name}.yaml").is_file() else "params.yaml"
    told = (yaml.safe_load((ROOT / config).read_text(encoding="utf-8")) or {}).get("report", {})
    pictures = sorted(one.name for one in path.parent.iterdir() if one.suffix in (".png", ".svg"))
    return Report(
        name=name,
        config=config,
        title=told.get("title") or name,
        group=_group(experiment, rows),
        finding=_finding_of_benchmark(rows) if experiment == DEFAULT else _first_sentence(told.get("notes", "")),
        about=_about(rows),
        picture=pictures[0] if pictures else None,
        minutes=minutes_of(rows),
    )


def _group(experiment: str, rows: Sequence[Any]) -> str:
    return _TRACKS.get(getattr(rows[0], "track", None) or "", _EXPERIMENTS[experiment])


def _finding_of_benchmark(rows: Sequence[Row]) -> str:
    """Write the first sentence of the report's answer."""
    return next(iter(answer(standings(summarise(sorted_rows(as_algorithms(rows)))))), "")


def _first_sentence(notes: str) -> str:
    """Take the first sentence of a report's notes; a heading of one or two words is none."""
    text = re.sub(r"^\*\*\w+( \w+)?\.\*\*\s*", "", " ".join(notes.split()))
    found = re.match(r".*?[.](?=\*\* |\*\*$| [A-Z*]|$)", text)
    return found[0].replace("**", "") if found else text


def _about(rows: Sequence[Any]) -> str:
    named = [sorted({str(value) for row in rows if (value := getattr(row, key, ""))}) for key in ("dataset", "model")]
    seeds = plural(len({row.seed for row in rows}), "seed")
    return "; ".join([", ".join(one) for one in named if one] + [seeds])


def minutes_of(rows: Sequence[Any]) -> float | None:
    """Add up the work of a report; work that rows share is recorded with the same seconds in each of them."""
    spent: set[tuple[str, float]] = set()
    for row in rows:
        known = {key: getattr(row, key, None) for key in _SECONDS} | getattr(row, "client_statistics_seconds", {})
        spent |= {(key, seconds) for key, seconds in known.items() if seconds}
    return sum(seconds for _, seconds in spent) / 60 if spent else None


def cards(reports: Sequence[Report]) -> str:
    """Write the page of all reports."""
    return "\n\n".join(_cards(gather(reports, lambda one: one.group))) + "\n"


def _cards(groups: Mapping[str, Sequence[Report]]) -> Iterator[str]:
    yield "# Reports"
    yield (
        "Each card has the first finding of a report. The [leaderboard](../reports/leaderboard/index.html) ranks every "
        "method in every setting of all of them. [Make a report again](reproduce.md) has the commands. "
        "[Coverage](coverage.md) says which table of which paper a report repeats."
    )
    for group in (*_TRACKS.values(), *_EXPERIMENTS.values()):
        yield f"## {group}"
        yield '<div class="cards" markdown>'
        for one in groups.get(group, ()):
            link = f"../reports/{one.name}/index.html"
            picture = f"![Chart of {one.title}](../reports/{one.name}/{one.picture}){{ loading=lazy }}"
            shown = f"[{picture}]({link})\n\n" if one.picture else ""
            yield (
                f'<div class="card" markdown>\n\n{shown}**[{one.title}]({link})**\n\n{one.finding}\n\n'
                f'<span class="about">{one.about}</span>\n\n</div>'
            )
        yield "</div>"


def commands(reports: Sequence[Report]) -> str:
    """Write the page of commands that make each report again."""
    lines = ["| report | command | minutes |", "| --- | --- | --- |"]
    for one in reports:
        minutes = "not recorded" if one.minutes is None else f"{one.minutes:,.0f}" if one.minutes >= 1 else "under 1"
        lines.append(f"| [{one.name}](../reports/{one.name}/index.html) | `fedfisher run {one.config}` | {minutes} |")
    return "\n\n".join(["# Make a report again", _ABOUT_MINUTES, "\n".join(lines)]) + "\n"


def leaders(best: MeanRanks) -> str:
    """Write methods by mean rank."""
    lines = ["| place | method | mean rank |", "| --- | --- | --- |"]
    for place, (method, rank) in enumerate(best.ranks.items(), start=1):
        lines.append(f"| {place} | [{method}](methods/{method}.md) | {rank:.2f} |")
    return "\n".join(lines)
