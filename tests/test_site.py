"""The site: it builds without a network, no link is dead, and its numbers are those of the committed reports."""

import json
import re
import statistics
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from fedfisher_core.methods.method import methods
from tests.built import ROOT, build_site
from tests.experiments.benchmark.samples import make_row
from website.markup import escaped, formulas
from website.places import with_links
from website.reports import minutes_of

pytestmark = pytest.mark.long

REPORTS = sorted(path.parent.name for path in ROOT.glob("reports/*/results.json"))
BUILTIN = [name for name in methods if methods.get(name).function.__module__.startswith("fedfisher_core.")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


def words(page: Path) -> str:
    """The text of a page, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.read_text())).split())


def test_every_link_leads_to_a_page_and_a_heading(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    names = {path: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for path, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for link in map(unescape, re.findall(r'<(?:a|img|script|link)\b[^>]*?\b(?:href|src)="([^"]*)"', text)):
            address, _, heading = link.partition("#")
            if re.match(r"(https?|data|mailto):", address):
                continue
            target = (page.parent / unquote(address)).resolve() if address else page
            if not target.is_file() or (heading and target in names and unquote(heading) not in names[target]):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert len(pages) > len(REPORTS) + len(BUILTIN)
    assert not dead, dead[:10]


def test_the_menu_has_every_page_of_docs() -> None:
    menu = re.findall(r"([\w./]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert pages - {"README.md"} <= set(menu)


def test_nothing_is_fetched(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="https?:[^"]*"', page.read_text()), (
            page
        )


def test_every_report_has_a_card_and_a_command_and_is_there_as_it_was(site: Path) -> None:
    cards, commands = (site / "reports.html").read_text(), words(site / "reproduce.html")
    for name in REPORTS:
        assert f'href="reports/{name}/index.html"' in cards
        assert re.search(rf" {name} fedfisher run (configs/{name}|params)\.yaml ", commands), name
        assert (site / f"reports/{name}/index.html").read_bytes() == (ROOT / f"reports/{name}/index.html").read_bytes()


def test_every_method_has_a_page_with_its_settings(site: Path) -> None:
    for name in BUILTIN:
        page = words(site / f"methods/{name}.html")
        method = methods.get(name)
        assert all(f" {setting} " in page for setting in method.settings.model_fields), name
        assert all(f" {upload.name} " in page for upload in method.uploads), name
        assert method.reference in page


def test_a_methods_standing_is_what_the_result_file_gives_by_hand(site: Path) -> None:
    rows = json.loads((ROOT / "reports/best_effort_cifar10_mlp/results.json").read_text())
    accuracy = {(row["method"], row["seed"], row["alpha"]): row["accuracy"] for row in rows}
    alphas = {row["alpha"] for row in rows}
    by_seed = [
        100 * statistics.fmean(accuracy["mats", seed, at] - accuracy["fedavg", seed, at] for at in alphas)
        for seed in (0, 1, 2)
    ]
    # Student's quantile of 97.5 % with two degrees of freedom.
    mean, half = statistics.fmean(by_seed), 4.302653 * statistics.stdev(by_seed) / 3**0.5
    expected = f"best_effort_cifar10_mlp {len(alphas)} {mean:.1f} ({mean - half:.1f} to {mean + half:.1f})"
    assert expected in words(site / "methods/mats.html")


def test_work_that_rows_share_counts_once() -> None:
    shared = {"client_train_seconds": 60.0, "client_encode_seconds": None}
    rows = [
        make_row(name, server_seconds=server, client_statistics_seconds={"kfac": 30.0}, **shared)
        for name, server in (("fedavg", 6.0), ("kfac", 24.0))
    ]
    assert minutes_of(rows) == pytest.approx(2.0)


def test_formulas_are_set_and_code_stays() -> None:
    assert formulas("sum_i w_i^T in `p_i`") == "∑<sub>i</sub> w<sub>i</sub><sup>T</sup> in `p_i`"
    assert escaped("a_b < [c]|") == r"a\_b &lt; \[c\]\|"


def test_links_are_moved_but_not_those_of_code() -> None:
    text = "[a](../reports/x/index.html#y) [b](../params.yaml)\n```\nf[a](../b)\n```"
    moved = "[a](../reports/x/index.html#y) [b](../source/params.yaml.md)\n```\nf[a](../b)\n```"
    assert with_links("docs/tutorials/page.md", text.replace("../", "../../", 2)) == moved
