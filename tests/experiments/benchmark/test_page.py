import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedfisher_core.errors import InputError
from fedfisher_core.reporting import PublishedResult, ReportData, read_results, render_page, write_report
from fedfisher_core.reporting.formats import points, seconds, setting_value, settings_groups
from fedfisher_core.reporting.notes import notes_html

from .samples import make_report, make_row, make_rows

VOID = {"meta", "br", "img", "link", "input", "hr", "wbr", "path", "use"}


class Page(HTMLParser):
    """What a browser would see: text, tags and attributes; fails on tags that don't match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.bold: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)
        if self._open and self._open[-1] == "strong":
            self.bold.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def report() -> ReportData:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.7}, alphas=(0.1, None))
    rows += [make_row("local", reference=True, accuracy=0.95, upload_bits=0, seed=seed) for seed in range(3)]
    rows += [make_row("dense", failed_clients=[4], accuracy=0.4, uses_validation=True)]
    published = (
        PublishedResult("A paper", "Table 7", "mnist", "mlp", 5, 0.1, "kfac", 0.6, 0.02),
        PublishedResult("A paper", "Table 7", "svhn", "mlp", 5, 0.1, "kfac", 0.6, 0.02),
    )
    return make_report(rows, published=published)


@pytest.fixture(scope="module")
def html(report: ReportData) -> str:
    return render_page(report)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_the_page_says_what_ran(page: Page) -> None:
    for part in (
        "A sample",
        "fedfisher run sample.yaml",
        "2030-01-02 03:04 UTC",
        "numpy 9.9",
        "seeds: [0, 1]",
        "Second paragraph.",
    ):
        assert part in page.text


def test_the_page_holds_the_results(page: Page) -> None:
    for part in (
        "71.00 ± 1.00",
        "+20.00 [+20.00, +20.00]",
        "References: no one-shot method",
        "mnist, mlp, 5 clients, 1 round",
        "dirichlet, α = 0.1",
        "iid",
        "1.000",
        "1.00×",
        "0.00×",
        "(1 seed)",
    ):
        assert part in page.text
    assert "71.00" in page.bold
    assert "95.00" not in page.bold


def test_the_page_compares_with_published_numbers(page: Page) -> None:
    assert "A paper, Table 7" in page.text
    assert "+11.00" in page.text
    assert "+5.50" in page.text
    assert "yes, above" in page.bold
    assert "1 of 1 comparison" in page.text


def test_failed_clients_are_said_before_any_result(page: Page) -> None:
    assert page.text.index("Clients failed") < page.text.index("What ran") + len("What ran") + 200
    assert page.text.index("Clients failed") < page.text.index("71.00")
    assert "Clients failed" not in Page(render_page(make_report([make_row()]))).text


def test_every_row_is_traced_to_its_artifact(page: Page, report: ReportData) -> None:
    for row in report.rows:
        assert row.artifact in page.text


def test_the_page_asks_for_nothing_outside_itself(page: Page, html: str) -> None:
    for name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
        assert all(value.startswith(("#", "data:")) for value in page.values(name))
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_identifiers_are_unique_and_links_lead_somewhere(page: Page) -> None:
    identifiers = page.values("id")
    assert len(identifiers) == len(set(identifiers))
    targets = [value[1:] for value in page.values("href") if value.startswith("#")]
    assert set(targets) <= set(identifiers)
    assert set(page.values("aria-labelledby")) <= set(identifiers)


def test_tables_have_headers_with_scope(page: Page) -> None:
    scopes = [attributes.get("scope") for tag, attributes in page.tags if tag == "th"]
    assert scopes
    assert set(scopes) <= {"col", "row", "rowgroup"}
    assert ("html", {"lang": "en"}) in page.tags


def test_equal_reports_give_equal_bytes(report: ReportData, html: str) -> None:
    again = make_report(
        report.rows[::-1],  # type: ignore[arg-type]
        published=report.published,
    )
    assert render_page(again) == html


def test_html_in_texts_is_shown_not_used() -> None:
    evil = "<script>alert(1)</script> & <b>"
    rows = [make_row(evil, method_settings={"a": evil}, artifact=evil), make_row(dataset=evil)]
    page = Page(
        render_page(
            make_report(
                rows,
                title=evil,
                command=evil,
                notes=evil,
                settings={evil: evil},
                settings_yaml=evil,
                versions={evil: evil},
            )
        )
    )
    assert not {"script", "b"} & {tag for tag, _ in page.tags}
    assert page.text.count(evil) >= 10


def test_a_single_seed_shows_no_deviation() -> None:
    page = Page(render_page(make_report(make_rows({"fedavg": 0.5, "kfac": 0.6}, seeds=1), partitions=())))
    assert "±" not in page.text
    assert "+10.00" in page.text
    assert "confidence interval" not in page.text
    assert "Labels of each client" not in page.text


def test_published_numbers_without_a_match_are_said() -> None:
    assert "No published number is known" in render_page(make_report([make_row()], published=()))


def test_a_report_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        render_page(make_report([]))


def test_the_report_is_written_with_its_results(tmp_path: Path) -> None:
    report = make_report([make_row()])
    paths = write_report(report, tmp_path / "sample")
    assert [path.name for path in paths] == ["results.json", "results.csv", "index.html"]
    assert read_results(paths[0]) == report.rows
    assert paths[2].read_text(encoding="utf-8") == render_page(report)


def test_notes_know_paragraphs_lists_and_little_else() -> None:
    html = notes_html("One *two*\nthree **four** `a*b*<c>`\n- x\n- y\n  z\n\n5 * 6 * 7, fed_avg <i>")
    assert html == (
        "<p>One <em>two</em> three <strong>four</strong> <code>a*b*&lt;c&gt;</code></p>\n"
        "<ul><li>x</li><li>y z</li></ul>\n"
        "<p>5 * 6 * 7, fed_avg &lt;i&gt;</p>"
    )
    assert notes_html(" \n ") == ""


def test_nested_settings_become_groups_with_dotted_names() -> None:
    data = {"alpha": [0.1, 0.2], "noise": {"level": None}}
    settings = {"name": "x", "data": data, "methods": {"fedavg": {}}}
    assert settings_groups(settings) == [
        ("general", [("name", "x")]),
        ("data", [("alpha", "0.1, 0.2")]),
        ("data.noise", [("level", "none")]),
        ("methods", [("fedavg", "none")]),
    ]
    assert setting_value([{"a": 1, "b": True}]) == "a = 1, b = true"


def test_numbers_are_written_plainly() -> None:
    assert points(-0.0123) == "\u22121.23"
    assert points(-0.000001) == "0.00"
    assert points(0.5) == "+50.00"
    assert seconds(0.001) == "<\u20090.01"
    assert seconds(0.0) == "0.00"


def test_reporting_needs_no_torch() -> None:
    code = "import sys, fedfisher_core.reporting; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
