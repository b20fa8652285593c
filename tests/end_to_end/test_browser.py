"""What people see: the report and MLflow's pages in a real browser."""

import json
import shutil
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import Select, WebDriverWait

from fedfisher_core.leaderboard.entries import make_entries
from fedfisher_core.leaderboard.ranking import comparable_methods, mean_ranks_of
from fedfisher_core.leaderboard.reading import read_reports
from tests.end_to_end.conftest import BIN, ROOT, Workplace
from tests.experiments.benchmark.samples import make_row, make_rows, render
from tests.leaderboard.boards import scored, write_board
from tests.servers import free_port, stopped_after, wait_for

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="chromium and chromedriver are not installed"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1500,1100",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = webdriver.Chrome(service=Service(str(DRIVER)), options=options)
    yield driver
    driver.quit()


def requested(browser: webdriver.Chrome) -> set[str]:
    """Addresses that were asked for since the last call, without what pages carry in themselves."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"}
    return {url for url in urls if not url.startswith("data:")}


def shows(browser: webdriver.Chrome, *words: str) -> None:
    def all_there(driver: webdriver.Chrome) -> bool:
        text = driver.execute_script("return document.body.innerText")
        return all(word in text for word in words)

    condition: Callable[[webdriver.Chrome], bool] = all_there
    WebDriverWait(browser, 90).until(condition, f"the page never showed {words}")


def column(browser: webdriver.Chrome, table: str, index: int) -> list[list[str]]:
    """What a column of a table shows, a list a body."""
    return browser.execute_script(
        "return [...document.querySelector(arguments[0]).tBodies].map("
        "(body) => [...body.rows].map((row) => row.cells[arguments[1]]?.innerText.split('\\n')[0] ?? row.innerText))",
        table,
        index,
    )


def test_a_report_is_sorted_by_any_column(browser: webdriver.Chrome, tmp_path: Path) -> None:
    rows = [
        *make_rows({"fedavg": 0.5, "kfac": 0.97, "diag": 0.099}, seeds=1),
        make_row("local", reference=True, accuracy=0.6, server_seconds=0.001),
        make_row("pooled", reference=True, accuracy=0.7, server_seconds=0.01),
    ]
    page = tmp_path / "index.html"
    page.write_text(render(rows))
    browser.get(page.as_uri())
    table, group = "[aria-labelledby='results'] .numbers", "References: no one-shot method"

    def click(heading: str) -> list[list[str]]:
        found = browser.find_element("xpath", f"//section[.//h2[@id='results']]//th[.='{heading}']/button")
        found.click()
        index = browser.execute_script("return arguments[0].parentElement.cellIndex", found)
        assert browser.execute_script("return document.querySelectorAll('[aria-sort]').length") == 1
        return column(browser, table, index)[:2]

    assert click("Accuracy") == [["9.90", "50.00", "97.00"], [group, "60.00", "70.00"]]
    assert click("Accuracy") == [["97.00", "50.00", "9.90"], [group, "70.00", "60.00"]]
    # The baseline has no difference, and stands last in either direction.
    assert click("To FedAvg") == [["−40.10", "+47.00", "–"], [group, "+10.00", "+20.00"]]
    assert click("To FedAvg") == [["+47.00", "−40.10", "–"], [group, "+20.00", "+10.00"]]
    assert click("Server,\u00a0s")[1] == [group, "<\u20090.01", "0.01"]
    assert click("Method") == [["diag", "fedavg", "kfac best"], [group, "local", "pooled"]]


LEADERBOARD = {
    # The first three have one split; the mlp has another, and more methods.
    "small": [
        *scored("fedavg", 0.50, 0.52),
        *scored("kfac", 0.90, 0.90, server_seconds=2.0),
        *scored("<b>odd", 0.70, 0.70),
        *scored("local_mean", 0.60, reference=True),
        *scored("ensemble", 0.95, reference=True),
    ],
    "wide": [
        row
        for alpha in range(1, 61)
        for method, accuracy in (("fedavg", 0.4), ("kfac", 0.3 if alpha == 1 else 0.5))
        for row in scored(method, accuracy, alpha=float(alpha), model="cnn", track="best_effort")
    ],
}


def test_the_leaderboard_is_sorted_filtered_and_ranked_without_a_network(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    write_board(tmp_path, LEADERBOARD)
    page = (tmp_path / "leaderboard/index.html").as_uri()
    requested(browser)
    browser.get(page)
    assert requested(browser) == {page}

    def choose(name: str, value: str) -> None:
        Select(browser.find_element("css selector", f"#filters [name={name}]")).select_by_visible_text(value)

    def click(selector: str) -> None:
        browser.execute_script("document.querySelector(arguments[0]).click()", selector)

    def count() -> str:
        return browser.find_element("id", "count").text

    def ranks() -> dict[str, str]:
        names, means = (column(browser, "#rank-table", index)[0] for index in (0, 1))
        return dict(zip(names, means, strict=True))

    def methods() -> list[str]:
        return column(browser, "#entry-table", 0)[0]

    assert count() == "Entries 1 to 100 of 125."
    assert methods()[:5] == ["kfac", "<b>odd", "fedavg below local", "ensemble ensemble", "local_mean reference"]
    assert column(browser, "#entry-table", 1)[0][:5] == ["1 of 3", "2 of 3", "3 of 3", "apart", "apart"]
    assert ranks() == {"kfac": "1.02", "fedavg": "1.98"}
    click("#next")
    assert count() == "Entries 101 to 125 of 125."
    assert len(methods()) == 25

    click("[data-column=accuracy] button")
    assert count() == "Entries 1 to 100 of 125."
    assert column(browser, "#entry-table", 2)[0][:2] == ["30.00", "40.00"]
    click("[data-column=accuracy] button")
    assert methods()[:4] == ["ensemble ensemble", "kfac", "<b>odd", "local_mean reference"]
    assert column(browser, "#entry-table", 2)[0][4] == "51.00 ± 1.41"

    choose("model", "mlp")
    assert count() == "Entries 1 to 5 of 5."
    assert ranks() == {"kfac": "1.00", "fedavg": "2.00"}
    click("#chosen [value='<b>odd']")
    assert ranks() == {"kfac": "1.00", "<b>odd": "2.00", "fedavg": "3.00"}
    choose("track", "best effort")
    assert count() == "No entry has all of this."
    assert ranks() == {}
    choose("model", "all")
    choose("alpha", "7")
    choose("method", "fedavg")
    assert count() == "Entries 1 to 1 of 1."
    click("#filters [type=reset]")
    WebDriverWait(browser, 10).until(lambda _: count() == "Entries 1 to 100 of 125.")
    browser.find_element("css selector", "#filters [name=text]").send_keys("ODD")
    assert methods() == ["<b>odd"]
    assert browser.execute_script("return document.querySelectorAll('main b').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.execute_script("document.querySelector('#entry-table a').click()")
    assert browser.current_url == (tmp_path / "small/index.html").as_uri()


def test_the_published_leaderboard_shows_the_mean_ranks_that_are_recorded(browser: webdriver.Chrome) -> None:
    entries = make_entries(read_reports([ROOT / "reports"]).benchmarks)
    best = mean_ranks_of(entries, comparable_methods(entries))
    browser.get((ROOT / "reports/leaderboard/index.html").as_uri())
    assert column(browser, "#rank-table", 0)[0] == list(best.ranks)
    assert column(browser, "#rank-table", 1)[0] == [f"{rank:.2f}" for rank in best.ranks.values()]
    assert f"{best.num_settings} settings" in browser.find_element("id", "rank-summary").text


def test_the_report_and_mlflow_show_the_methods(workplace: Workplace, browser: webdriver.Chrome) -> None:
    workplace.run("fedfisher", "run")

    requested(browser)
    page = Path(workplace.folder, "results/small/index.html").as_uri()
    browser.get(page)
    shows(browser, "fedavg", "fedfisher_diag", "Ensembles: one shot too")
    assert requested(browser) == {page}
    assert browser.execute_script("return document.querySelectorAll('svg').length") >= 3
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")

    port = free_port()
    client = MlflowClient(tracking_uri=f"sqlite:///{workplace.folder}/mlflow.db")
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    runs = [run.info.run_id for run in client.search_runs([experiment.experiment_id])]
    with stopped_after([str(BIN / "fedfisher"), "ui", "--port", str(port)], workplace.environment, workplace.folder):
        wait_for(f"http://127.0.0.1:{port}/health")
        base = f"http://127.0.0.1:{port}/#"
        browser.get(f"{base}/experiments/{experiment.experiment_id}/runs")
        shows(browser, "fedavg a=0.5 s=0", "fedfisher_diag a=0.5 s=0", "ensemble a=0.5 s=0")
        browser.get(f"{base}/experiments/{experiment.experiment_id}/runs?compareRunsMode=CHART")
        browser.refresh()
        shows(browser, "Model metrics", "fedfisher_diag a=0.5 s=0")
        chosen = urllib.parse.quote(json.dumps(runs))
        where = urllib.parse.quote(json.dumps([experiment.experiment_id]))
        browser.get(f"{base}/compare-runs?runs={chosen}&experiments={where}")
        browser.refresh()
        shows(browser, "Comparing 3 Runs", "method", "seed")
        outside = {url for url in requested(browser) if url.startswith("http") and f"127.0.0.1:{port}" not in url}
        assert not outside
