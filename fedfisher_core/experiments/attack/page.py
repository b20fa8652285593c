"""The report of a privacy attack: one HTML page, and pictures of the reconstructions."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, fields

from markupsafe import Markup

from fedfisher_core.experiments.attack.figures import Gallery, budget_figure, case_figure, gallery_figure
from fedfisher_core.experiments.attack.findings import Finding, compare_cases
from fedfisher_core.experiments.attack.rows import AttackRow, Summary, summarise
from fedfisher_core.reporting import formats
from fedfisher_core.reporting.drawing import to_png, to_svg
from fedfisher_core.reporting.measure import Measure
from fedfisher_core.reporting.notes import notes_html
from fedfisher_core.reporting.page import PageData, template_environment, template_text


@dataclass(frozen=True)
class AttackReport(PageData):
    """All that a report shows.

    Args:
        rows: the results, at least one.
        galleries: reconstructed images beside real ones.
    """

    rows: Sequence[AttackRow]
    galleries: Sequence[Gallery]


@dataclass(frozen=True)
class Block:
    """What was measured on one data set and network at one privacy budget.

    Args:
        title: which.
        summaries: methods, then floors and ceilings.
        findings: differences of cases.
        figure: the cases, SVG.
        trials: pairs of target label and seed.
    """

    title: str
    summaries: Sequence[Summary]
    findings: Sequence[Finding]
    figure: Markup
    trials: int


def render_attack(report: AttackReport) -> str:
    """Render a report as one self-contained HTML page.

    Args:
        report: what to show.

    Returns:
        The page; equal reports give equal text. It makes no request and runs no script.
    """
    environment = template_environment()
    environment.filters["significant"] = formats.significant
    environment.filters["measure"] = Measure.of
    return environment.get_template("privacy_attack.html.j2").render(
        report=report,
        style=Markup(template_text("style.css")),
        notes=notes_html(report.notes),
        settings=formats.settings_groups(report.settings),
        blocks=_blocks(report.rows),
        budgets=[(title, Markup(to_svg(budget_figure(rows)))) for title, rows in _networks_with_budgets(report.rows)],
        galleries=[(gallery, _data_uri(to_png(gallery_figure(gallery)))) for gallery in report.galleries],
        rows=report.rows,
        labels=sorted({row.target_label for row in report.rows}),
        seeds=sorted({row.seed for row in report.rows}),
    )


def report_files(rows: Sequence[AttackRow], galleries: Sequence[Gallery], page: PageData) -> dict[str, bytes]:
    """Make the page, and the galleries as reconstructions.png and so on.

    Args:
        rows: the results.
        galleries: reconstructed images.
        page: what every report shows.

    Returns:
        The files by name.
    """
    shared = {field.name: getattr(page, field.name) for field in fields(PageData)}
    files = {"index.html": render_attack(AttackReport(**shared, rows=rows, galleries=galleries)).encode()}
    for number, gallery in enumerate(galleries, start=1):
        name = "reconstructions.png" if number == 1 else f"reconstructions-{number}.png"
        files[name] = to_png(gallery_figure(gallery))
    return files


def _blocks(rows: Sequence[AttackRow]) -> list[Block]:
    groups: dict[tuple[str, str, float | None], list[AttackRow]] = {}
    for row in rows:
        if not row.reference:
            groups.setdefault((row.dataset, row.model, row.epsilon), []).append(row)
    blocks = []
    for (dataset, model, epsilon), own in groups.items():
        shown = [*own, *(row for row in rows if row.reference and row.dataset == dataset)]
        blocks.append(
            Block(
                title=f"{dataset}, {model}" + ("" if epsilon is None else f", ε = {epsilon:g}"),
                summaries=summarise(shown),
                findings=compare_cases(own),
                figure=Markup(to_svg(case_figure(shown))),
                trials=len({(row.target_label, row.seed) for row in own}),
            )
        )
    return blocks


def _networks_with_budgets(rows: Sequence[AttackRow]) -> list[tuple[str, list[AttackRow]]]:
    """Gather rows by data set and network, where differential privacy was used at all."""
    groups: dict[tuple[str, str], list[AttackRow]] = {}
    for row in rows:
        if not row.reference:
            groups.setdefault((row.dataset, row.model), []).append(row)
    return [
        (f"{dataset}, {model}", own)
        for (dataset, model), own in groups.items()
        if any(row.epsilon is not None for row in own)
    ]


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
