"""What MkDocs calls: it puts the pages of docs, the generated ones and the committed reports into the site."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from benchmarks.overview import table
from fedfisher_core.experiments.leaderboard.entries import make_entries, read_reports
from fedfisher_core.experiments.leaderboard.ranking import comparable_methods, mean_ranks_of
from fedfisher_core.methods.method import methods
from website import methods as of_methods
from website import reports as of_reports
from website.places import ROOT, place_of, sources_of, with_links
from website.settings import reference

_REPORTS = ROOT / "reports"
_TRACK = "best_effort"
_OUTSIDE_DOCS = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "deploy/README.md", "examples/*/README.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the page of each method in the menu."""
    ranked: dict[bool, list[dict[str, str]]] = {True: [], False: []}
    for name in methods:
        ranked[methods.get(name).ranked].append({name: f"methods/{name}.md"})
    section = _section(config.nav or [], "Methods")
    section += [{"One network": ranked[True]}, {"Ensembles and references": ranked[False]}]
    return config


def _section(nav: Sequence[Mapping[str, Any]], title: str) -> list[Any]:
    return next(one[title] for one in nav if title in one)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all pages, and copy the reports as they are."""
    pages = _pages()
    for path, text in (pages | sources_of(pages)).items():
        files.append(File.generated(config, place_of(path), content=with_links(path, text)))
    for copied in [*(ROOT / "docs").glob("*.png"), *_REPORTS.rglob("*")]:
        if copied.is_file():
            where = place_of(copied.relative_to(ROOT).as_posix())
            files.append(File.generated(config, where, abs_src_path=str(copied)))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, which the theme leaves without a name."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def _pages() -> dict[str, str]:
    """Make the text of each page, by its path in the repository; generated pages lie in docs."""
    written = [*(ROOT / "docs").rglob("*.md"), *(path for one in _OUTSIDE_DOCS for path in ROOT.glob(one))]
    pages = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in written}
    benchmarks = read_reports([_REPORTS]).benchmarks
    reports = of_reports.find_reports(_REPORTS)
    entries = [one for one in make_entries(benchmarks) if one.track == _TRACK]
    best = mean_ranks_of(entries, comparable_methods(entries))
    made = {
        "docs/reports.md": of_reports.cards(reports),
        "docs/reproduce.md": of_reports.commands(reports),
        "docs/all_settings.md": reference(),
        **{f"docs/methods/{name}.md": text for name, text in of_methods.pages(_REPORTS, benchmarks).items()},
    }
    front = Template((Path(__file__).parent / "front.md").read_text(encoding="utf-8"))
    shown = front.substitute(settings=best.num_settings, leaders=of_reports.leaders(best), table=table(_REPORTS))
    pages["docs/methods.md"] += f"\n{of_methods.listed()}"
    return pages | made | {"docs/README.md": shown}
