"""The page of a leaderboard, one file with its data, and its run in MLflow."""

import hashlib
import os
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scipy.special import stdtrit

from fedfisher_core.experiments.benchmark.answer import to_other
from fedfisher_core.experiments.benchmark.rows import Role
from fedfisher_core.experiments.leaderboard.entries import SETTING, Entry, Reports
from fedfisher_core.experiments.leaderboard.ranking import MeanRanks, Track, compare_tracks
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.reporting.charts import Chart, Trade, to_html, trade_off_chart
from fedfisher_core.reporting.formats import in_words, plural
from fedfisher_core.reporting.measure import BASELINE, gather
from fedfisher_core.reporting.page import PageData, render, script_data, template_text
from fedfisher_core.reporting.rows import RESULTS, read_rows
from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings import AVERAGE, PLAIN
from fedfisher_core.settings.base import LEADERBOARD

# With fewer digits, means of accuracies that differ could tie.
_DIGITS = 7
_ATTACK, _AS_SENT = "privacy_attack", ", compressed"
_LEAST_TRADES = 3
BEST_EFFORT = "best_effort"
"""The track with which the page opens."""


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Args:
        words: whether it holds words, which are aligned to the left.
    """

    name: str
    heading: str
    words: bool = False


_FILTERS = (
    Column("track", "Track"),
    Column("dataset", "Data set"),
    Column("model", "Model"),
    Column("objective", "Objective"),
    Column("partition", "Partition"),
    Column("alpha", "α"),
    Column("shift", "Shift"),
    Column("num_clients", "Clients"),
    Column("wire_budget", "Budget"),
    Column("report", "Report"),
)
_COLUMNS = (
    Column("method", "Method", words=True),
    Column("rank", "Rank"),
    Column("accuracy", "Accuracy, %"),
    Column("seeds", "Seeds"),
    Column("dataset", "Data set", words=True),
    Column("model", "Model", words=True),
    Column("objective", "Objective", words=True),
    Column("server_optimiser", "Server optimiser", words=True),
    Column("partition", "Partition", words=True),
    Column("alpha", "α"),
    Column("shift", "Shift", words=True),
    Column("num_clients", "Clients"),
    Column("num_rounds", "Rounds"),
    Column("cohort", "Cohort"),
    Column("unseen_clients", "Unseen clients"),
    Column("wire_budget", "Budget", words=True),
    Column("upload", "Upload, Mbit"),
    Column("download", "Download, Mbit"),
    Column("server", "Server, s"),
    Column("networks", "Networks"),
    Column("validation", "Uses validation", words=True),
    Column("track", "Track", words=True),
    Column("epsilon", "ε, at most"),
    Column("report", "Report", words=True),
    Column("training", "Training", words=True),
)


def render_leaderboard(reports: Reports, entries: Sequence[Entry], *, out: Path, command: str, created: str) -> str:
    """Render the page.

    Args:
        entries: at least one.
        out: the folder of the page; links to the reports start there.
    """
    # A column with the usual value in every row says nothing.
    usual = {
        "epsilon": None,
        "shift": None,
        "training": None,
        "num_rounds": 1,
        "cohort": None,
        "unseen_clients": None,
        "objective": PLAIN,
        "server_optimiser": AVERAGE,
    }
    absent = {name for name, value in usual.items() if all(getattr(one, name) == value for one in entries)}
    tracks = sorted(compare_tracks(entries), key=lambda track: track.track != BEST_EFFORT)
    attacked = recognised(reports)
    return render(
        "leaderboard.html.j2",
        PageData(
            title="Leaderboard",
            benchmark="All reports",
            command=command,
            created=created,
            versions={},
            settings={},
            settings_yaml="",
            notes="",
        ),
        columns=[column for column in _COLUMNS if column.name not in absent],
        filters=[column for column in _FILTERS if column.name not in absent],
        num_entries=len(entries),
        num_settings=len({one.setting for one in entries}),
        num_reports=len(reports.benchmarks),
        left_out=[(one, _link(one.folder, out)) for one in reports.left_out],
        datasets=sorted({one.dataset for one in entries}),
        tracks=tracks,
        leads=[lead(track) for track in tracks],
        trade_offs=[to_html(chart) for chart in trade_off_charts(entries, attacked)],
        board=template_text("leaderboard.js"),
        data=script_data(_data(entries, attacked, {one.name: _link(one.folder, out) for one in reports.benchmarks})),
    )


def recognised(reports: Reports) -> dict[str, float]:
    """Read which share of an attack's images is recognised, in per cent by method; empty without such a report.

    Where the attack saw the upload as it is sent within a budget, that number counts.
    """
    report = next((one for one in reports.left_out if one.name == _ATTACK), None)
    if report is None:
        return {}
    # Noise and what is compared change what an attack finds, and have no place in a mean.
    plain_rows = [row for row in read_rows(report.folder / RESULTS, AttackRow) if row.epsilon is row.factors is None]
    rows = gather(plain_rows, lambda row: row.method)
    means = {
        method: 100 * statistics.fmean(row.attack_accuracy for row in own)
        for method, own in rows.items()
        if not own[0].reference
    }
    plain = {method: mean for method, mean in means.items() if ", " not in method}
    return plain | {method.removesuffix(_AS_SENT): mean for method, mean in means.items() if method.endswith(_AS_SENT)}


def lead(track: Track) -> str:
    """Say in one sentence how the first method of a track compares with the next."""
    others = [one for one in track.over_seeds if one.kind is Role.ONE_NETWORK]
    top, track_name = in_words(track.first), track.track.replace("_", " ")
    if not others:
        return f"{track_name.capitalize()}: {top} has the best mean rank. No other method has its seeds in a setting."
    nearest = others[0]
    apart = f"{to_other(nearest.difference, nearest.other)} over {plural(nearest.num_settings, 'setting')}"
    if nearest.difference.n == 1:
        return f"{track_name.capitalize()}: {top} has the best mean rank; it is {apart}. One seed shows no lead."
    level = [one for one in others if one.difference.interval is None or one.difference.interval[0] <= 0]
    if level:
        return f"{track_name.capitalize()}: no method leads. {top} has the best mean rank; it is {apart}."
    which = (
        "the only other method" if len(others) == 1 else f"all {len(others)} methods that share most settings with it"
    )
    return f"{track_name.capitalize()}: {top} leads {which}. It is {apart}, the next."


def trade_off_charts(entries: Sequence[Entry], attacked: Mapping[str, float]) -> list[Chart]:
    """Draw accuracy against bits, the server's seconds and the attack, in the settings that most methods of the best
    effort share; none without them.
    """
    own = [one for one in entries if one.track == BEST_EFFORT and one.kind is Role.ONE_NETWORK and not one.variant]
    by_method = gather(own, lambda one: one.method)
    settings = {
        method: {(one.setting, frozenset(one.accuracy_by_seed)) for one in found} for method, found in by_method.items()
    }
    # Methods that lack a setting or a seed would be averaged over others. So the set that gives most entries is shown.
    counts = Counter(map(frozenset, settings.values()))
    shared = max(counts, key=lambda one: len(one) * counts[one], default=frozenset())
    whole = {method: found for method, found in by_method.items() if settings[method] == shared}
    if len(whole) < _LEAST_TRADES:
        return []
    costs: dict[str, Callable[[str], float | None]] = {
        "upload of all clients, Mbit": lambda method: statistics.fmean(one.upload_bits for one in whole[method]) / 1e6,
        "server, s": lambda method: statistics.fmean(one.server_seconds for one in whole[method]),
        "recognised by an attack, %": attacked.get,
    }
    charts = []
    for axis, cost in costs.items():
        trades = [
            Trade(method, in_words(method), spent, 100 * statistics.fmean(one.accuracy for one in found))
            for method, found in whole.items()
            if (spent := cost(method)) is not None
        ]
        if trades:
            axes = (axis, "mean accuracy, %")
            charts.append(trade_off_chart(trades, axes=axes, logarithmic_cost=axis.startswith("server")))
    return charts


def _link(folder: Path, out: Path) -> str:
    return quote(Path(os.path.relpath(folder / "index.html", out)).as_posix())


def _data(entries: Sequence[Entry], attacked: Mapping[str, float], links: Mapping[str, str]) -> dict[str, Any]:
    """Write settings and methods once, and each entry as a short list, with the digits that the page shows."""
    settings = list(dict.fromkeys(one.setting for one in entries))
    place = {setting: index for index, setting in enumerate(settings)}
    methods = sorted({one.method for one in entries})
    number = {method: index for index, method in enumerate(methods)}
    kinds = list(Role)
    most = max(one.num_seeds for one in entries)
    return {
        "links": links,
        "methods": methods,
        "names": [in_words(method) for method in methods],
        "attacked": [None if method not in attacked else round(attacked[method], 1) for method in methods],
        # Quantiles of 97.5 % of Student's distribution, by the number of seeds.
        "student": [None, None, *(round(float(stdtrit(seeds - 1, 0.975)), 5) for seeds in range(2, most + 1))],
        "kinds": kinds,
        "baseline": BASELINE,
        "setting_fields": SETTING,
        "settings": settings,
        "entries": [
            [
                place[one.setting],
                number[one.method],
                kinds.index(one.kind),
                int(one.variant),
                one.num_networks,
                {seed: round(accuracy, _DIGITS) for seed, accuracy in one.accuracy_by_seed.items()},
                one.rank,
                one.num_ranked,
                one.below_local_mean,
                round(one.upload_bits),
                round(one.download_bits),
                float(f"{one.server_seconds:.4g}"),
                one.uses_validation,
                None if one.epsilon is None else round(one.epsilon, 4),
            ]
            for one in entries
        ],
    }


NAME = LEADERBOARD
"""Name of the experiment and of its run."""


def make_runs(best: MeanRanks, *, num_entries: int, num_reports: int, table: bytes, out: Path) -> Runs:
    """Make one run, with mean ranks as metrics and the table as a file.

    Args:
        out: the leaderboard's folder, which identifies the run.
    """
    counts = {"num_entries": num_entries, "num_reports": num_reports, "num_common_settings": best.num_settings}
    metrics = {
        f"mean_rank_{name}": rank for name, rank in zip(_metric_names(best.ranks), best.ranks.values(), strict=True)
    }
    run = Record(
        name=NAME,
        params={"folder": out.as_posix()},
        metrics={**counts, **metrics},
        tags={},
        drawn_from=(hashlib.sha256(table).hexdigest(),),
        draw=partial(dict, {"results.csv": table}),
        folder="tables",
    )
    return Runs(single=[run], summary=[])


def _metric_names(methods: Iterable[str]) -> list[str]:
    """Write labels as MLflow allows them; labels that become equal are numbered."""
    names: list[str] = []
    for method in methods:
        name = re.sub(r"[^\w-]+", "_", method)
        again = sum(one == name or one.startswith(f"{name}.") for one in names)
        names.append(f"{name}.{again + 1}" if again else name)
    return names
