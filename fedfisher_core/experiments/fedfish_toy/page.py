"""The report of the toy regression: one HTML page, the learned functions, and the barriers."""

from collections.abc import Sequence

from fedfisher_core.experiments.fedfish_toy.figures import LABELS, Drawn, barrier_figure, functions_figure
from fedfisher_core.experiments.fedfish_toy.findings import findings_of, interval_text, number, overlap_name
from fedfisher_core.experiments.fedfish_toy.jobs import read_measured
from fedfisher_core.experiments.fedfish_toy.plan import FedFishToyPlan
from fedfisher_core.experiments.fedfish_toy.rows import METHODS, FedFishToyRow
from fedfisher_core.experiments.fedfish_toy.summary import LEVEL, Setting, settings_of
from fedfisher_core.regression.data import domain_points, interval_of, true_values
from fedfisher_core.reporting.drawing import to_png, to_svg
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.store import Artifact
from fedfisher_core.walk import Outcome

_SAID = {-1: "FedFish", 1: "FedAvg", 0: "not told", None: "a single seed"}


def report_files(
    plan: FedFishToyPlan, outcome: Outcome, rows: Sequence[FedFishToyRow], page: PageData
) -> dict[str, bytes]:
    """Make the page, and both figures as pictures; see `Experiment.files`."""
    drawn = drawn_of(plan, outcome)
    html = render_fedfish_toy(rows, drawn, plan.settings.toy.epochs, page)
    return {"index.html": html.encode(), **draw_figures(rows, drawn, plan.settings.toy.epochs)}


def drawn_of(plan: FedFishToyPlan, outcome: Outcome) -> list[Drawn]:
    """Choose what is drawn: the first seed of each overlap whose work is done.

    Args:
        plan: the experiment.
        outcome: of its jobs.

    Returns:
        A federation for each overlap; none for an overlap all of whose jobs failed.
    """
    grid = plan.settings.toy
    points = domain_points(grid.points)
    truth = true_values(grid.function, points)
    chosen: dict[float, Artifact] = {}
    for job in plan.federations:
        if job.name in outcome.artifacts:
            chosen.setdefault(job.overlap, outcome.artifacts[job.name])
    return [
        Drawn(
            overlap=overlap,
            points=points[:, 0].tolist(),
            truth=truth[:, 0].tolist(),
            intervals=[interval_of(client, grid.clients, overlap) for client in range(grid.clients)],
            measured=read_measured(artifact),
        )
        for overlap, artifact in chosen.items()
    ]


def render_fedfish_toy(
    rows: Sequence[FedFishToyRow], drawn: Sequence[Drawn], epochs: Sequence[int], page: PageData
) -> str:
    """Render a report.

    Args:
        rows: the results, at least one federation.
        drawn: what the figure of functions shows, a federation for each overlap.
        epochs: numbers of local epochs.
        page: what every report shows.

    Returns:
        The page.
    """
    settings = settings_of(rows)
    return render(
        "fedfish_toy.html.j2",
        page,
        findings=findings_of(settings),
        functions=to_svg(functions_figure(drawn, epochs)),
        barriers=to_svg(barrier_figure(settings)),
        results=[(one, overlap_name(one.overlap), _measures(one), _differences(one)) for one in settings],
        methods=METHODS,
        labels=LABELS,
        seeds=sorted({row.seed for row in rows}),
        level=LEVEL,
        intervals=2 * len(settings),
        domains=[(overlap_name(one.overlap), [interval_text(own) for own in one.intervals]) for one in drawn],
        artifacts={(overlap_name(row.overlap), row.seed): row.artifact for row in rows},
    )


def _measures(setting: Setting) -> dict[str, dict[str, str]]:
    fields = ("global_error", "best_fitted", "worst_fitted", "barrier", "local_error")
    return {
        method: {field: number(setting.methods[method].measure(field).mean) for field in fields} for method in METHODS
    }


def _differences(setting: Setting) -> list[tuple[str, str, int, str]]:
    return [
        (number(one.paired.mean), interval_text(one.interval), one.lower, _SAID[one.sign])
        for one in (setting.global_error, setting.barrier)
    ]


def draw_figures(
    rows: Sequence[FedFishToyRow], drawn: Sequence[Drawn], epochs: Sequence[int], *, dpi: int = 150
) -> dict[str, bytes]:
    """Draw both figures.

    Args:
        rows: the results.
        drawn: what the figure of functions shows.
        epochs: numbers of local epochs.
        dpi: pixels an inch.

    Returns:
        PNG files by name.
    """
    return {
        "functions.png": to_png(functions_figure(drawn, epochs), dpi=dpi),
        "barriers.png": to_png(barrier_figure(settings_of(rows)), dpi=dpi),
    }
