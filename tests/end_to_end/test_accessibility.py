"""Pages that people with any eyes and hands can read: axe-core's rules in a real browser."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.end_to_end.browsers import SKIP_WITHOUT_BROWSER, seen_as, started
from tests.end_to_end.conftest import ROOT
from tests.waiting import HANG_SECONDS

pytestmark = [pytest.mark.end_to_end, pytest.mark.long, SKIP_WITHOUT_BROWSER]

GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with started() as driver:
        yield driver


@pytest.fixture(scope="module")
def axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def violations(browser: webdriver.Chrome, axe: str) -> list[str]:
    """The grave ones of the page that the browser shows: each rule with the element and what is wrong with it."""
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => arguments[0](violations))"
    )
    return [
        f"{one['impact']} {one['id']}: {node['html']}: {node['failureSummary']}"
        for one in found
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


# Contrast depends on the colours, and layout on the width. So two of the four looks are enough.
each_look = pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])


def show(browser: webdriver.Chrome, page: Path, *, width: int, scheme: str) -> None:
    seen_as(browser, width=width, scheme=scheme)
    browser.get(page.as_uri())
    # The site remembers the colours that it was first seen in.
    browser.execute_script("localStorage.clear()")
    browser.get("about:blank")
    browser.get(page.as_uri())


@each_look
@pytest.mark.parametrize(
    "name", ["mnist_methods", "privacy_attack", "fedfish_toy", "theory_two_layer", "fl_algorithms", "leaderboard"]
)
def test_reports_have_no_grave_violation(
    browser: webdriver.Chrome, axe: str, name: str, width: int, scheme: str
) -> None:
    show(browser, ROOT / "reports" / name / "index.html", width=width, scheme=scheme)
    drawn = "return document.querySelectorAll('.plot:not(.vega-embed)').length === 0"
    WebDriverWait(browser, HANG_SECONDS).until(lambda _: browser.execute_script(drawn))
    assert violations(browser, axe) == []


@each_look
@pytest.mark.parametrize("name", ["index.html", "methods.html", "reports.html"])
def test_the_site_has_no_grave_violation(
    browser: webdriver.Chrome, axe: str, site: Path, name: str, width: int, scheme: str
) -> None:
    show(browser, site / name, width=width, scheme=scheme)
    assert violations(browser, axe) == []


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("<img src='data:,'>", "critical image-alt"),
        ("<p style='color: #bbb; background: white'>pale</p>", "serious color-contrast"),
    ],
)
def test_a_grave_violation_is_found(browser: webdriver.Chrome, axe: str, tmp_path: Path, body: str, rule: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><html lang='en'><title>A page</title><main><h1>A page</h1>{body}</main></html>")
    show(browser, page, width=1400, scheme="light")
    (found,) = violations(browser, axe)
    assert found.startswith(rule)
