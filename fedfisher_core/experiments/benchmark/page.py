"""The page of a benchmark: what leads, how sure that is, what it costs, and who the clients are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.data.shifts import Shifts
from fedfisher_core.data.tensors import Dataset
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.benchmark.algorithms import algorithm_of, as_algorithms, by_algorithm, by_objective
from fedfisher_core.experiments.benchmark.answer import (
    LEVEL,
    Standing,
    answer,
    at_equal_bits,
    compare_pairs,
    decided,
    setting_names,
    standings,
)
from fedfisher_core.experiments.benchmark.clients import client_costs, on_clients
from fedfisher_core.experiments.benchmark.figures import (
    Grid,
    means_chart,
    partition_grid,
    rounds_charts,
    settings_charts,
    trade_off_charts,
)
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan, failed_settings
from fedfisher_core.experiments.benchmark.published import (
    LEAST_REPEATS,
    MARGIN,
    PublishedResult,
    Verdict,
    compare,
    not_run,
    published_tables,
)
from fedfisher_core.experiments.benchmark.remarks import client_names, exchanged_names, natural_notes, remarks
from fedfisher_core.experiments.benchmark.rows import Role, Row, compared_seconds, round_rows, sorted_rows
from fedfisher_core.experiments.benchmark.settings import PUBLISHED
from fedfisher_core.experiments.benchmark.summary import Setting, SettingSummary, summarise
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import (
    class_names,
    data_notes,
    label_counts,
    maker_names,
    own_test_sizes,
    shifts_of,
    unassigned_test_size,
    unscaled_features,
)
from fedfisher_core.reporting.charts import to_html, to_png
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.page import PageData, notes_html, render
from fedfisher_core.reporting.pictures import Gallery
from fedfisher_core.reporting.rows import as_csv

_MOST_COLUMNS = 9
_WHITE = 255


@dataclass(frozen=True)
class PartitionView:
    """How one seed's data is split over the clients.

    Args:
        grid: examples by client and class, with whose examples each client holds, and how it sees them.
    """

    grid: Grid
    seed: int
    note: str = ""
    data_notes: Sequence[str] = ()


def shown_of(plan: BenchmarkPlan, outcome: Outcome) -> dict[str, Any]:
    """Gather the splits of the first seed, images as clients see them, and methods that failed with every seed."""
    first = [place for place in plan.federations.all if place.setting.seed == plan.settings.seeds[0]]
    # Networks and objectives share splits.
    splits = {
        plan.federations.partition(place).name: Setting.of_seeded(place.setting, plan.settings) for place in first
    }
    views = [
        _view(setting, plan.settings.seeds[0], outcome.artifacts[name])
        for name, setting in splits.items()
        if name in outcome.artifacts
    ]
    failed = failed_settings(plan, outcome)
    return {
        "partitions": [asdict(view) for view in views],
        "galleries": [gallery.shown() for gallery in shift_galleries(plan, outcome)],
        "failed": [
            {"setting": asdict(setting), "method": method, "reason": reason}
            for (setting, method), reason in failed.items()
        ],
        "published": plan.settings.report.published,
    }


def _view(setting: Setting, seed: int, partition: Artifact) -> PartitionView:
    shifts, names, makers = shifts_of(partition), list(class_names(partition)), maker_names(partition)
    notes = (
        exchanged_names(shifts, names),
        natural_notes(makers, own_test_sizes(partition), unassigned_test_size(partition), unscaled_features(partition)),
    )
    title = f"{setting.dataset}, {setting.num_clients} clients, {setting.split}"
    levels = client_names(makers, shifts)
    return PartitionView(
        partition_grid(np.array(label_counts(partition)), names, title, levels=levels),
        seed,
        " ".join(note for note in notes if note),
        data_notes(partition),
    )


def shift_galleries(plan: BenchmarkPlan, outcome: Outcome) -> list[Gallery]:
    """Show the first test image of each data set as clients see it, for the first seed.

    Returns:
        One gallery a data set whose images are shifted for some clients: a row for each shift and number of clients,
        with clients whose levels are evenly spread.
    """
    federations = [
        federation for federation in plan.federations.all if federation.setting.seed == plan.settings.seeds[0]
    ]
    rows: dict[tuple[str, str], tuple[Dataset, Shifts]] = {}
    for federation in federations:
        names = plan.federations.partition(federation).name, plan.federations.decoding(federation).name
        if not federation.setting.shift or any(name not in outcome.artifacts for name in names):
            continue
        partition, data = (outcome.artifacts[name] for name in names)
        shifts = shifts_of(partition)
        if shifts is not None and shifts.kind != "labels":
            row = f"{federation.setting.shift}, {federation.setting.clients} clients"
            rows.setdefault((federation.setting.dataset, row), (load_data(data), shifts))
    return [
        _gallery(dataset, [name for (_, name), _ in own], [shown for _, shown in own])
        for dataset, own in gather(rows.items(), lambda item: item[0][0]).items()
    ]


def _gallery(dataset: str, names: Sequence[str], shown: Sequence[tuple[Dataset, Shifts]]) -> Gallery:
    columns = min(_MOST_COLUMNS, *(len(shifts.levels) for _, shifts in shown))
    images = np.stack([_seen(data, shifts, columns) for data, shifts in shown])
    return Gallery(f"{dataset}: one test image as clients see it", tuple(names), images)


def _seen(data: Dataset, shifts: Shifts, columns: int) -> NDArray[np.floating]:
    """Show an image to clients, shape (columns, channels, height, width), from 0 to 1."""
    image = data.test.inputs[:1].float() / _WHITE
    clients = np.linspace(0, len(shifts.levels) - 1, columns).round().astype(int)
    seen = [shifts.of(int(client), test=True).images(image)[0] for client in clients]
    # Noise exceeds black and white.
    return np.stack([one.clamp(0, 1).numpy() for one in seen])


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
        lacking=any(one.num_settings < len(summaries) for one in found),
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
    ranked = at_equal_bits(found)
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
