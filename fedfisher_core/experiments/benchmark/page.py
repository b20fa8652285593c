"""The page of a benchmark: what leads, how sure that is, and what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.algorithms import algorithm_of, as_algorithms, by_algorithm, by_objective
from fedfisher_core.experiments.benchmark.answer import (
    LEVEL,
    Standing,
    answer,
    compare_pairs,
    decided,
    setting_names,
    standings,
)
from fedfisher_core.experiments.benchmark.clients import client_costs, on_clients
from fedfisher_core.experiments.benchmark.figures import (
    Grid,
    means_chart,
    rounds_charts,
    settings_charts,
    trade_off_charts,
)
from fedfisher_core.experiments.benchmark.published import (
    LEAST_REPEATS,
    MARGIN,
    PublishedResult,
    Verdict,
    compare,
    not_run,
    published_tables,
)
from fedfisher_core.experiments.benchmark.remarks import remarks
from fedfisher_core.experiments.benchmark.rows import Role, Row, compared_seconds, round_rows, sorted_rows
from fedfisher_core.experiments.benchmark.settings import PUBLISHED
from fedfisher_core.experiments.benchmark.summary import Setting, SettingSummary, summarise
from fedfisher_core.reporting.charts import to_html, to_png
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.page import PageData, notes_html, render
from fedfisher_core.reporting.rows import as_csv


@dataclass(frozen=True)
class FailedClients:
    """The clients that failed in one setting with one seed, and the methods that did without them."""

    setting: str
    seed: int
    clients: tuple[int, ...]
    methods: tuple[str, ...]


def report_files(rows: Sequence[Row], page: PageData) -> dict[str, bytes]:
    """Make the page, the chart of means as accuracy.png, and all rounds as rounds.csv; see `Experiment.files`."""
    tables = page.shown.get("published")
    published = None if tables is None else published_tables(PUBLISHED, tables)
    by_round = round_rows(rows)
    return {
        "index.html": render_page(page, rows, published).encode(),
        "accuracy.png": to_png(means_chart(standings(summarise(as_algorithms(rows))))),
        **({"rounds.csv": as_csv(by_round)} if by_round else {}),
    }


def render_page(page: PageData, rows: Sequence[Row], published: Sequence[PublishedResult] | None) -> str:
    """Render the page.

    Args:
        page: what it shows in addition to the rows is that of `shown_of`.
        rows: at least one.
        published: published accuracies to compare with; None for no comparison.

    Raises:
        InputError: there are no rows, or two rows share setting, method and seed.
    """
    if not rows:
        raise InputError(f"the report {page.title!r} has no rows; it needs at least one")
    # Objectives and costs of clients are shown for the rows as they ran.
    ran, rows = sorted_rows(rows), sorted_rows(as_algorithms(rows))
    summaries = summarise(rows)
    found = standings(summaries)
    seconds, tables = compared_seconds(rows), by_algorithm(summaries)
    return render(
        "benchmark.html.j2",
        page,
        rows=rows,
        summaries=summaries,
        names=setting_names([summary.setting for summary in summaries]),
        standings=gather(found, lambda one: one.line.role),
        roles=Role,
        spent=seconds,
        answer=notes_html(" ".join(answer(found))),
        remarks=notes_html("\n\n".join(remarks(ran))),
        failures=_failures(rows),
        failed=_failed(page.shown.get("failed", ())),
        privacy=_privacy(rows),
        methods=[(one.method, one.name) for one in found],
        seeds=sorted({row.seed for row in rows}),
        objectives=by_objective(summarise(ran)),
        algorithms=tables,
        client_tables=on_clients(summaries),
        method_settings=_method_settings(rows),
        means=to_html(means_chart(found)),
        by_setting=[to_html(chart) for chart in settings_charts(summaries, found)],
        trade_offs=[to_html(chart) for chart in trade_off_charts(found, seconds)],
        curves=[to_html(chart) for chart in rounds_charts(tables)],
        costs=client_costs(ran),
        **_partitions(page.shown),
        **_pairs(summaries, found),
        **_next_to_published(rows, published),
    )


def _partitions(shown: Mapping[str, Any]) -> dict[str, Any]:
    views = shown.get("partitions", ())
    return {
        "partitions": [(view, Grid(**view["grid"])) for view in views],
        "data_notes": list(dict.fromkeys(note for view in views for note in view["data_notes"])),
        "galleries": shown.get("galleries", ()),
    }


def _pairs(summaries: Sequence[SettingSummary], found: Sequence[Standing]) -> dict[str, Any]:
    """Compare the leader with all others over settings, and every two methods of one network in each setting."""
    pairs = compare_pairs(summaries)
    ranked = [one for one in found if one.line.role is Role.ONE_NETWORK]
    return {
        "leader": ranked[0] if ranked else None,
        "behind": [one for one in found if one.behind_leader is not None and one.line.role is not Role.REFERENCE],
        "tests": sum(pair.p_value is not None for pair in pairs),
        "decided": decided(pairs),
        "level": LEVEL,
    }


def _next_to_published(rows: Sequence[Row], published: Sequence[PublishedResult] | None) -> dict[str, Any]:
    comparisons = None if published is None else compare(rows, published)
    return {
        "comparisons": comparisons,
        "comparisons_by_setting": gather(comparisons or (), lambda one: one.setting.label).items(),
        "verdicts": Verdict,
        "margin": MARGIN,
        "least_repeats": LEAST_REPEATS,
        "unknown_repeats": any(one.test is not None and one.published.repeats is None for one in comparisons or ()),
        "not_run": not_run(rows, published or ()),
    }


def _failed(failed: Sequence[Mapping[str, Any]]) -> dict[tuple[Setting, str], str]:
    """Read why methods failed with every seed of a setting, by setting and label, under which they are compared."""
    return {algorithm_of(Setting(**one["setting"]), one["method"]): one["reason"] for one in failed}


def _privacy(rows: Sequence[Row]) -> list[tuple[str, int, float, float | None]]:
    """List setting, seed and both bounds on epsilon, which all methods share, where there was differential privacy."""
    known = (
        (Setting.of(row).label, row.seed, row.epsilon, row.audited_epsilon) for row in rows if row.epsilon is not None
    )
    return list(dict.fromkeys(known))


def _failures(rows: Sequence[Row]) -> list[FailedClients]:
    failed = [row for row in rows if row.failed_clients]
    groups = gather(failed, lambda row: (Setting.of(row).label, row.seed, tuple(sorted(row.failed_clients))))
    return [FailedClients(*key, tuple(row.method for row in own)) for key, own in groups.items()]


def _method_settings(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        distinct = found.setdefault(row.method, [])
        if row.method_settings not in distinct:
            distinct.append(row.method_settings)
    return dict(sorted(found.items()))
