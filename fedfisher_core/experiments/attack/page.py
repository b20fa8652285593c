"""The report of a privacy attack: one HTML page, and pictures of the reconstructions."""

from collections.abc import Sequence

from fedfisher_core.experiments.attack.figures import budget_figure, case_figure
from fedfisher_core.experiments.attack.galleries import make_galleries
from fedfisher_core.experiments.attack.plan import AttackPlan
from fedfisher_core.experiments.attack.rows import AttackRow
from fedfisher_core.experiments.attack.summary import blocks
from fedfisher_core.reporting.drawing import to_png, to_svg
from fedfisher_core.reporting.gallery import Gallery, data_uri, gallery_figure
from fedfisher_core.reporting.measure import gather
from fedfisher_core.reporting.page import PageData, render
from fedfisher_core.walk import Outcome


def report_files(plan: AttackPlan, outcome: Outcome, rows: Sequence[AttackRow], page: PageData) -> dict[str, bytes]:
    """Make the page, and the galleries as reconstructions.png and so on; see `Experiment.files`."""
    return draw_report(rows, make_galleries(plan, outcome), page)


def draw_report(rows: Sequence[AttackRow], galleries: Sequence[Gallery], page: PageData) -> dict[str, bytes]:
    """Make the files of a report.

    Args:
        rows: the results, at least one.
        galleries: reconstructed images beside real ones.
        page: what every report shows.

    Returns:
        The files by name.
    """
    pictures = {_file(number): to_png(gallery_figure(gallery)) for number, gallery in enumerate(galleries, start=1)}
    html = render(
        "privacy_attack.html.j2",
        page,
        blocks=[(block, to_svg(case_figure(block.rows))) for block in blocks(rows)],
        budgets=[(title, to_svg(budget_figure(own))) for title, own in _networks_with_budgets(rows)],
        galleries=list(zip(galleries, map(data_uri, pictures.values()), strict=True)),
        rows=rows,
        labels=sorted({row.target_label for row in rows}),
        seeds=sorted({row.seed for row in rows}),
    )
    return {"index.html": html.encode(), **pictures}


def _file(number: int) -> str:
    return "reconstructions.png" if number == 1 else f"reconstructions-{number}.png"


def _networks_with_budgets(rows: Sequence[AttackRow]) -> list[tuple[str, list[AttackRow]]]:
    """Gather rows by data set and network, where differential privacy was used at all."""
    attacks = [row for row in rows if not row.reference]
    groups = gather(attacks, lambda row: f"{row.dataset}, {row.model}")
    return [(title, own) for title, own in groups.items() if any(row.epsilon is not None for row in own)]
