"""The report of a benchmark: one HTML page that needs nothing outside itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.agreement import MARGIN, Verdict, compare, not_run
from fedfisher_core.experiments.benchmark.algorithms import algorithm_of, as_algorithms, by_algorithm
from fedfisher_core.experiments.benchmark.answer import answer, setting_names
from fedfisher_core.experiments.benchmark.client_measures import on_clients
from fedfisher_core.experiments.benchmark.costs import client_costs
from fedfisher_core.experiments.benchmark.curves import curves_figure
from fedfisher_core.experiments.benchmark.figures import (
    accuracy_by_alpha_figure,
    accuracy_by_bits_figure,
    by_network,
    time_figure,
)
from fedfisher_core.experiments.benchmark.grids import partition_grid
from fedfisher_core.experiments.benchmark.leads import find_leads
from fedfisher_core.experiments.benchmark.objectives import by_objective
from fedfisher_core.experiments.benchmark.pairs import LEVEL, compare_pairs, wins
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan
from fedfisher_core.experiments.benchmark.published import LEAST_REPEATS, PublishedResult, published_tables
from fedfisher_core.experiments.benchmark.ranking import rank_methods
from fedfisher_core.experiments.benchmark.remarks import remarks
from fedfisher_core.experiments.benchmark.results import failed_cells
from fedfisher_core.experiments.benchmark.roles import Role
from fedfisher_core.experiments.benchmark.rows import Row, round_rows, sorted_rows
from fedfisher_core.experiments.benchmark.settings import PUBLISHED, BenchmarkSettings
from fedfisher_core.experiments.benchmark.shift_galleries import shift_galleries
from fedfisher_core.experiments.benchmark.summary import Setting, SettingSummary, families, overview, summarise
from fedfisher_core.experiments.benchmark.views import client_names, exchanged_names, natural_notes
from fedfisher_core.federation.partition import (
    class_names,
    label_counts,
    maker_names,
    nobodys_test_size,
    own_test_sizes,
    shifts_of,
    unscaled_features,
)
from fedfisher_core.reporting.drawing import to_png, to_svg
from fedfisher_core.reporting.gallery import Gallery, data_uri, gallery_figure
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.notes import notes_html
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.reporting.rank_diagram import rank_diagram
from fedfisher_core.reporting.rows import as_csv
from fedfisher_core.reporting.signed_ranks import LEAST_SETTINGS
from fedfisher_core.settings import Cell
from fedfisher_core.store import Artifact
from fedfisher_core.walk import Outcome

_MOST_PAIRS = 2000
# More of either would make a page of more than a megabyte; what is left out stands in tables and in results.csv.
_MOST_POINTS, _MOST_ROWS = 150, 500


@dataclass(frozen=True)
class PartitionView:
    """How one seed's data is split over the clients.

    Args:
        setting: label of the setting.
        seed: the seed.
        label_counts: examples by client and class, shape (clients, classes).
        class_names: names of the classes.
        clients: whose examples each holds, and how it sees them; nothing where there is nothing to say.
        note: what else is to be known of them.
    """

    setting: str
    seed: int
    label_counts: NDArray[np.integer]
    class_names: list[str]
    clients: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class FailedClients:
    """The clients that failed in one setting with one seed, and the methods that went without them."""

    setting: str
    seed: int
    clients: tuple[int, ...]
    methods: tuple[str, ...]


def report_files(plan: BenchmarkPlan, outcome: Outcome, rows: Sequence[Row], page: PageData) -> dict[str, bytes]:
    """Make the page, the chart of accuracies as accuracy.png, and all rounds as rounds.csv; see `Experiment.files`."""
    first = plan.settings.seeds[0]
    shown = {place.cell.setting: place for place in plan.federations.places if place.cell.seed == first}
    splits = [(place.cell, plan.federations.partition(place).name) for place in shown.values()]
    views = [_view(cell, outcome.artifacts[name]) for cell, name in splits if name in outcome.artifacts]
    failed = failed_cells(plan, outcome)
    by_round = round_rows(rows)
    return {
        "index.html": render_page(
            page, rows, views, _published(plan.settings), failed, shift_galleries(plan, outcome)
        ).encode(),
        "accuracy.png": to_png(accuracy_by_alpha_figure(as_algorithms(rows))),
        **({"rounds.csv": as_csv(by_round)} if by_round else {}),
    }


def _view(cell: Cell, partition: Artifact) -> PartitionView:
    shifts, names, makers = shifts_of(partition), list(class_names(partition)), maker_names(partition)
    notes = (
        exchanged_names(shifts, names),
        natural_notes(makers, own_test_sizes(partition), nobodys_test_size(partition), unscaled_features(partition)),
    )
    return PartitionView(
        cell.setting,
        cell.seed,
        np.array(label_counts(partition)),
        names,
        client_names(makers, shifts),
        " ".join(note for note in notes if note),
    )


def _published(settings: BenchmarkSettings) -> list[PublishedResult] | None:
    tables = settings.report.published
    return None if tables is None else published_tables(PUBLISHED, tables)


def render_page(
    page: PageData,
    rows: Sequence[Row],
    partitions: Sequence[PartitionView],
    published: Sequence[PublishedResult] | None,
    failed: Mapping[tuple[Setting, str], str],
    galleries: Sequence[Gallery],
) -> str:
    """Render a report.

    Args:
        page: what every report shows.
        rows: the results, at least one.
        partitions: the splits to show, one a setting.
        published: published accuracies to compare with; None for no comparison.
        failed: why methods failed with every seed of a setting, by both.
        galleries: images as clients see them, where some see them in another way.

    Returns:
        The page.

    Raises:
        InputError: there are no rows, or two rows share setting, method and seed.
    """
    if not rows:
        raise InputError(f"the report {page.title!r} has no rows; it needs at least one")
    # What clients minimise, and what they spend, is shown of the rows as they ran.
    ran, rows = sorted_rows(rows), sorted_rows(as_algorithms(rows))
    groups = families(rows)
    summaries = [summary for group in groups.values() for summary in group]
    grids = [
        partition_grid(view.label_counts, view.class_names, view.setting, levels=view.clients).svg()
        for view in partitions
    ]
    return render(
        "page.html.j2",
        page,
        rows=rows,
        rows_by_setting=list(gather(rows, lambda row: Setting.of(row).label).items()),
        families=list(groups.items()),
        roles=Role,
        remarks=notes_html("\n\n".join(remarks(ran))),
        failures=_failures(rows),
        failed={algorithm_of(*cell): reason for cell, reason in failed.items()},
        privacy=_privacy(rows),
        methods=sorted({row.method for row in rows}),
        seeds=sorted({row.seed for row in rows}),
        objectives=by_objective(summarise(ran)),
        **_by_round(summaries),
        client_tables=on_clients(summaries),
        method_settings=_method_settings(rows),
        accuracy_by_alpha=to_svg(accuracy_by_alpha_figure(rows)),
        accuracy_by_bits=to_svg(accuracy_by_bits_figure(rows)) if _points(rows) <= _MOST_POINTS else "",
        time=to_svg(time_figure(rows)),
        by_network=by_network(groups),
        most_rows=_MOST_ROWS,
        costs=client_costs(ran),
        partitions=list(zip(partitions, grids, strict=True)),
        several_splits=any(len(family) > 1 for family in groups.values()),
        shifted=any(row.shift is not None for row in rows),
        galleries=[(gallery, data_uri(to_png(gallery_figure(gallery)))) for gallery in galleries],
        **_compared(summaries),
        **_beside_published(rows, published),
    )


def _points(rows: Sequence[Row]) -> int:
    """Count the points of a figure of every method in every setting."""
    return len({(Setting.of(row).label, row.method) for row in rows})


def _by_round(summaries: Sequence[SettingSummary]) -> dict[str, Any]:
    """Show algorithms round by round, where there are several."""
    tables = by_algorithm(summaries)
    return {"algorithms": tables, "curves": to_svg(curves_figure(tables)) if tables else ""}


def _compared(summaries: Sequence[SettingSummary]) -> dict[str, Any]:
    """Compare every two methods of one network, and rank them."""
    pairs = compare_pairs(summaries)
    # All of very many pairs would make a page that no browser likes; what is told apart is what a reader looks for.
    listed = pairs if len(pairs) <= _MOST_PAIRS else [pair for pair in pairs if pair.told_apart]
    leads = find_leads(summaries, pairs)
    tests = sum(pair.test is not None for pair in pairs)
    lines = gather(overview(summaries), lambda line: line.role)
    methods = [line.method for line in lines.get(Role.ONE_NETWORK, [])]
    ranking = rank_methods(summaries)
    return {
        "summaries": summaries,
        "lines": lines,
        "answer": notes_html("\n\n".join(answer(summaries, leads, tests))),
        "names": setting_names([summary.setting for summary in summaries]),
        "leads": leads,
        "pairs": gather(pairs, lambda pair: pair.setting),
        "listed": gather(listed, lambda pair: pair.setting),
        "most_pairs": None if len(pairs) <= _MOST_PAIRS else _MOST_PAIRS,
        "tests": tests,
        "level": LEVEL,
        "scores": list(zip(methods, wins(pairs, methods), strict=True)),
        "ranking": ranking,
        "least_settings": LEAST_SETTINGS,
        "ranks": None if ranking is None else rank_diagram(ranking),
    }


def _beside_published(rows: Sequence[Row], published: Sequence[PublishedResult] | None) -> dict[str, Any]:
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
