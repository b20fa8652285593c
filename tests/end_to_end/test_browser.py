"""What people see: the report and MLflow's pages in a real browser."""

import json
import re
import statistics
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import requests
from mlflow import MlflowClient
from selenium import webdriver
from selenium.webdriver.support.ui import Select, WebDriverWait

from fedfisher_core.experiments.leaderboard.entries import make_entries, read_reports
from fedfisher_core.reporting.chart_script import write_script
from tests.end_to_end.browsers import SKIP_WITHOUT_BROWSER, seen_as, started
from tests.end_to_end.conftest import BIN, ROOT, Workplace, workplace_in
from tests.experiments.benchmark.samples import make_row, make_rows, render
from tests.experiments.leaderboard.boards import scored, write_board
from tests.servers import answering, free_port, stopped_after, wait_for
from tests.waiting import HANG_SECONDS

# Together, so that they look at one run in one browser.
pytestmark = [pytest.mark.end_to_end, pytest.mark.long, SKIP_WITHOUT_BROWSER]

METHODS = ["fedavg", "regmean", "fedfisher_diag"]
REFERENCES = ["ensemble", "local_mean"]
ALPHAS = [0.1, 0.5]


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with started() as driver:
        yield driver


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
    WebDriverWait(browser, HANG_SECONDS).until(condition, f"the page never showed {words}")


def column(browser: webdriver.Chrome, table: str, index: int) -> list[list[str]]:
    """What a column of a table shows, a list a body."""
    return browser.execute_script(
        "return [...document.querySelector(arguments[0]).tBodies].map("
        "(body) => [...body.rows].map((row) => row.cells[arguments[1]]?.innerText.split('\\n')[0] ?? row.innerText))",
        table,
        index,
    )


ROWS = [
    *make_rows({"fedavg": 0.5, "regmean": 0.6}, alphas=(0.1, 0.5)),
    *(
        make_row("fedfisher_kfac", alpha=alpha, seed=seed, accuracy=accuracy)
        for alpha in (0.1, 0.5)
        for seed, accuracy in enumerate((0.7, 0.715, 0.72))
    ),
    make_row("local_mean", reference=True, accuracy=0.099, server_seconds=0.001),
    make_row("centralised", reference=True, accuracy=0.75, server_seconds=0.01),
]


@pytest.fixture
def report(tmp_path: Path) -> str:
    """The address of a page next to the script that draws its charts."""
    write_script(tmp_path)
    page = tmp_path / "sample/index.html"
    page.parent.mkdir()
    page.write_text(render(ROWS))
    return page.as_uri()


@pytest.fixture(autouse=True)
def usual_view(browser: webdriver.Chrome) -> Iterator[None]:
    yield
    seen_as(browser, width=1500)


def names_in(browser: webdriver.Chrome, chart: int) -> list[str]:
    """The texts of a chart that was drawn by the script."""
    waited = WebDriverWait(browser, HANG_SECONDS)
    waited.until(lambda _: browser.execute_script("return document.querySelectorAll('.vega-embed').length") >= 4)
    return browser.execute_script(
        "return [...document.querySelectorAll('.plot')[arguments[0]].querySelectorAll('text')]"
        ".map((one) => one.textContent)",
        chart,
    )


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "light"), (1400, "dark")])
def test_the_first_screen_of_a_report_says_and_draws_who_leads(
    browser: webdriver.Chrome, report: str, width: int, scheme: str
) -> None:
    seen_as(browser, width=width, scheme=scheme)
    browser.get(report)
    names = names_in(browser, 0)
    order = [name for name in names if name in {"FedFisher (K-FAC)", "RegMean", "FedAvg", "References:"}]
    assert order == ["FedFisher (K-FAC)", "RegMean", "FedAvg", "References:"]
    sentence, chart = (browser.find_element("css selector", f".answer {what}") for what in ("p", ".plot"))
    assert sentence.text.startswith("FedFisher (K-FAC) leads all 2 other methods: over 2 settings its mean accuracy")
    assert 0 < sentence.rect["y"] < chart.rect["y"] < 1000
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    # Lines have their names at their ends.
    assert {"FedFisher (K-FAC)", "RegMean", "FedAvg"} <= set(names_in(browser, 1))
    # What is written differs from what it is written on.
    paper, ink = (
        browser.execute_script("return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", *what)
        for what in (("body", "backgroundColor"), (".plot svg text", "fill"))
    )
    assert sum(map(int, re.findall(r"\d+", paper)[:3])) > 600 if scheme == "light" else paper == "rgb(20, 23, 27)"
    assert ink != paper


def test_a_method_is_hidden_in_tables_and_charts_and_the_address_keeps_it(
    browser: webdriver.Chrome, report: str
) -> None:
    browser.get(report)
    assert "RegMean" in names_in(browser, 0)
    browser.execute_script("document.querySelector('.methods').open = true")
    browser.find_element("css selector", ".methods input[value=regmean]").click()
    browser.execute_script("document.querySelector('#accuracy-table thead tr').cells[1].firstChild.click()")

    def is_kept(driver: webdriver.Chrome) -> bool:
        rows = driver.find_elements("css selector", "tr[data-method=regmean]")
        return bool(rows) and not any(row.is_displayed() for row in rows) and "RegMean" not in names_in(driver, 0)

    WebDriverWait(browser, HANG_SECONDS).until(is_kept)
    address = browser.execute_script("return location.href")
    browser.get("about:blank")
    browser.get(address)
    WebDriverWait(browser, HANG_SECONDS).until(is_kept)
    assert column(browser, "#accuracy-table", 0)[0] == ["FedAvg", "RegMean", "FedFisher (K-FAC)"]
    assert browser.find_element("css selector", "[aria-sort]").text.startswith("Mean over settings")


def test_without_the_script_of_charts_a_page_shows_those_that_it_contains(
    browser: webdriver.Chrome, report: str, tmp_path: Path
) -> None:
    (tmp_path / "assets/vega.js").unlink()
    browser.get(report)
    assert browser.execute_script("return document.querySelectorAll('.vega-embed').length") == 0
    texts = browser.execute_script("return document.querySelector('.plot').textContent")
    assert "FedFisher (K-FAC)" in texts


def test_a_report_is_sorted_by_any_column(browser: webdriver.Chrome, report: str) -> None:
    browser.get(report)
    group = "References: no one-shot method"

    def click(table: str, heading: str) -> list[list[str]]:
        found = browser.find_element("xpath", f"//table[@id='{table}']//th[normalize-space()='{heading}']/button")
        browser.execute_script("arguments[0].click()", found)
        index = browser.execute_script("return arguments[0].parentElement.cellIndex", found)
        return column(browser, f"#{table}", index)[:2]

    assert click("accuracy-table", "Mean over settings") == [
        ["51.00", "61.00", "71.17"],
        [group, "9.90 of 1", "75.00 of 1"],
    ]
    assert click("accuracy-table", "Mean over settings")[0] == ["71.17", "61.00", "51.00"]
    # The baseline has no difference, and stands last in either direction.
    for _ in range(2):
        assert click("accuracy-table", "Above FedAvg, points")[0][-1] == "–"
    assert click("cost-table", "Server,\u00a0s")[1] == [group, "<\u20090.01", "0.01"]
    assert click("cost-table", "Method")[0] == ["FedAvg", "FedFisher (K-FAC)", "RegMean"]


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


def test_the_leaderboard_opens_on_the_best_effort_and_keeps_filters_in_its_address(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    write_board(tmp_path, LEADERBOARD)
    page = (tmp_path / "leaderboard/index.html").as_uri()
    requested(browser)
    browser.get(page)
    assert requested(browser) == {page, (tmp_path / "assets/vega.js").as_uri()}

    def choose(name: str, value: str) -> None:
        Select(browser.find_element("css selector", f"#filters [name={name}]")).select_by_visible_text(value)

    def click(selector: str) -> None:
        browser.execute_script("document.querySelector(arguments[0]).click()", selector)

    def count() -> str:
        return browser.find_element("id", "count").text

    def means(index: int) -> list[str]:
        return column(browser, "#means-table", index)[0]

    def methods() -> list[str]:
        return column(browser, "#entry-table", 0)[0]

    assert browser.find_element("id", "means-table").rect["y"] < 1000
    assert (means(0), means(1)) == (["kfac", "FedAvg"], ["49.67", "40.00"])
    assert count() == "Entries 1 to 100 of 120."
    click("#next")
    assert count() == "Entries 101 to 120 of 120."
    assert len(methods()) == 20

    choose("track", "all")
    assert count() == "Entries 1 to 100 of 124."
    choose("model", "mlp")
    assert (means(0), means(1)) == (
        ["kfac", "<b>odd", "FedAvg", "Ensemble ensemble"],
        ["90.00", "70.00", "51.00", "95.00"],
    )
    # Student's quantile with one degree of freedom times 1.41 points over the root of two.
    assert means(2) == ["90.00 to 90.00", "70.00 to 70.00", "38.29 to 63.71", "–"]
    click("#filters [name=references]")
    assert methods() == [
        "kfac",
        "<b>odd",
        "FedAvg below local",
        "Ensemble ensemble",
        "Mean of local networks reference",
    ]
    assert column(browser, "#entry-table", 1)[0] == ["1 of 3", "2 of 3", "3 of 3", "apart", "apart"]
    click("[data-column=accuracy] button")
    click("[data-column=accuracy] button")
    assert column(browser, "#entry-table", 2)[0] == ["95.00", "90.00 ± 0.00", "70.00 ± 0.00", "60.00", "51.00 ± 1.41"]

    address = browser.execute_script("return location.href")
    browser.get("about:blank")
    browser.get(address)
    assert methods()[:1] == ["Ensemble ensemble"]
    assert count() == "Entries 1 to 5 of 5."
    click("#reset")
    assert count() == "Entries 1 to 100 of 120."
    choose("track", "all")
    browser.find_element("css selector", "#filters [name=text]").send_keys("ODD")
    assert methods() == ["<b>odd"]
    assert browser.execute_script("return document.querySelectorAll('main b').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.execute_script("document.querySelector('#entry-table a').click()")
    assert browser.current_url == (tmp_path / "small/index.html").as_uri()


def test_a_sorted_leaderboard_that_arrives_in_two_parts_is_sorted(browser: webdriver.Chrome, tmp_path: Path) -> None:
    write_board(tmp_path, {"small": scored("fedavg", 0.4) + scored("fedfisher_kfac", 0.5)})
    page = (tmp_path / "leaderboard/index.html").read_bytes()
    data = page.index(b'<script type="application/json"')

    class InTwoParts(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            if self.path == "/leaderboard/index.html":
                self.wfile.write(page[:data])
                time.sleep(0.5)
                self.wfile.write(page[data:])

    with answering(InTwoParts) as address:
        browser.get(f"{address}/leaderboard/index.html#?sort.entry-table=2,up")
        assert column(browser, "#entry-table", 0)[0] == ["FedAvg", "FedFisher (K-FAC)"]


def test_the_published_leaderboard_has_the_means_of_the_result_files(browser: webdriver.Chrome) -> None:
    entries = [
        one
        for one in make_entries(read_reports([ROOT / "reports"]).benchmarks)
        if (one.track, one.method) == ("best_effort", "gaussian_distillation")
    ]
    browser.get((ROOT / "reports/leaderboard/index.html").as_uri())
    assert column(browser, "#means-table", 0)[0][0] == "Gaussian distillation"
    assert column(browser, "#means-table", 1)[0][0] == f"{100 * statistics.fmean(one.accuracy for one in entries):.2f}"


def test_a_reader_of_the_site_finds_a_method_by_its_name(browser: webdriver.Chrome, site: Path) -> None:
    requested(browser)
    browser.get((site / "index.html").as_uri())
    shows(browser, "Who is ahead", "Leaderboard")
    browser.find_element("css selector", "[data-md-component=search-query]").send_keys("gaussian_distillation")
    wanted = "[data-md-component=search-result] a[href*='methods/gaussian_distillation.html']"
    WebDriverWait(browser, HANG_SECONDS).until(lambda driver: driver.find_elements("css selector", wanted))[0].click()
    shows(browser, "What a client sends", "What the attack finds")
    assert "methods/gaussian_distillation.html" in browser.current_url
    assert {urllib.parse.urlsplit(url).scheme for url in requested(browser)} == {"file"}
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, digits: Path, prefect_api: str, database: Path) -> Workplace:
    """A finished run of several methods, for tests that only look at it."""
    place = workplace_in(tmp_path_factory.mktemp("compared"), digits, prefect_api, database)
    methods: dict[str, object] = {one: {} for one in (*METHODS, *REFERENCES)}
    place.change({"name": "compared", "methods": methods, "partition": {"alpha": ALPHAS, "clients": [3]}})
    place.run("fedfisher", "run")
    return place


@pytest.fixture(scope="module")
def mlflow_page(compared: Workplace) -> Iterator[str]:
    """The address that `fedfisher ui` says for the run."""
    port, log = free_port(), compared.folder / "ui.log"
    command = [str(BIN / "fedfisher"), "ui", "--port", str(port)]
    with stopped_after(command, compared.environment, compared.folder, log=log):
        wait_for(f"http://127.0.0.1:{port}/health")
        name, _, address = log.read_text().splitlines()[0].partition(": ")
        assert name == "compared"
        yield address


def test_the_report_shows_the_methods(compared: Workplace, browser: webdriver.Chrome) -> None:
    requested(browser)
    page = Path(compared.folder, "results/compared/index.html").as_uri()
    browser.get(page)
    shows(browser, "FedAvg", "FedFisher (diagonal)", "Ensembles: clients get several networks")
    assert requested(browser) == {page, Path(compared.folder, "results/assets/vega.js").as_uri()}
    assert browser.execute_script("return document.querySelectorAll('svg').length") >= 1
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def test_mlflow_shows_the_methods_and_the_report(
    compared: Workplace, mlflow_page: str, browser: webdriver.Chrome
) -> None:
    client = MlflowClient(tracking_uri=f"sqlite:///{compared.folder}/mlflow.db")
    experiment = client.get_experiment_by_name("compared")
    assert experiment is not None
    runs = [run.info.run_id for run in client.search_runs([experiment.experiment_id])]
    server = mlflow_page.partition("/#")[0]
    requested(browser)
    browser.get(f"{server}/#/experiments/{experiment.experiment_id}/runs")
    shows(browser, *(f"{method} a=0.5 s=0" for method in (*METHODS, *REFERENCES)))
    # The description leads to the report, which MLflow shows.
    report = browser.find_element("link text", "Report").get_attribute("href")
    assert report is not None
    browser.get(report)
    browser.refresh()
    shows(browser, "report/index.html")
    browser.get(f"{server}/#/experiments/{experiment.experiment_id}/runs?compareRunsMode=CHART")
    browser.refresh()
    shows(browser, "Model metrics", "fedfisher_diag a=0.5 s=0")
    chosen = urllib.parse.quote(json.dumps(runs[:3]))
    where = urllib.parse.quote(json.dumps([experiment.experiment_id]))
    browser.get(f"{server}/#/compare-runs?runs={chosen}&experiments={where}")
    browser.refresh()
    shows(browser, "Comparing 3 Runs", "method", "seed")
    outside = {url for url in requested(browser) if url.startswith("http") and not url.startswith(server)}
    assert not outside


def test_mlflow_opens_at_the_comparison_of_all_methods(
    compared: Workplace, mlflow_page: str, browser: webdriver.Chrome
) -> None:
    runs = [f"{method} a={alpha:g}" for method in METHODS for alpha in ALPHAS]
    browser.set_window_size(1400, 1000)
    browser.get(mlflow_page)
    shows(browser, "Runs", *runs, f"{len(runs)} matching runs")
    for found in browser.find_elements("css selector", "[data-component-id='mlflow.assistant.chat_panel.close']"):
        found.click()
    text = browser.execute_script("return document.body.innerText")
    assert not [name for name in REFERENCES if name in text]
    # One seed each, so that a run of the summary has the accuracy of a row.
    accuracies = {f"{row['method']} a={row['alpha']:g}": row["accuracy"] for row in compared.rows("compared")}
    shown = [accuracies[run] for run in sorted(runs, key=text.index)]
    assert shown == sorted(shown, reverse=True)


def test_prefects_page_shows_a_task_a_client_and_step_with_arrows(
    compared: Workplace, browser: webdriver.Chrome
) -> None:
    server = compared.environment["PREFECT_API_URL"].removesuffix("/api")
    query = {"flow_runs": {"name": {"any_": ["compared"]}}}
    (run,) = requests.post(f"{server}/api/flow_runs/filter", json=query, timeout=HANG_SECONDS).json()

    browser.get(f"{server}/runs/flow-run/{run['id']}")
    shows(browser, "44 Task runs", "Task Runs")
    browser.find_element("xpath", "//*[text()='Task Runs']").click()
    setting = "of mnist5k lenet dirichlet_client alpha=0.5 clients=3 seed=0"
    shows(browser, f"train client 2 {setting}", f"aggregate fedfisher_diag {setting}", f"evaluate fedavg {setting}")

    # The page draws this graph on a canvas, whose boxes and arrows are no elements that could be counted.
    drawn = browser.execute_async_script(
        "fetch(`/api/flow_runs/${arguments[0]}/graph-v2`).then((answer) => answer.json()).then(arguments[1])", run["id"]
    )
    nodes = {one["id"]: one for _, one in drawn["nodes"]}
    arrows = {
        node["label"].split(f" {setting}")[0]: {
            nodes[one["id"]]["label"].split(f" {setting}")[0] for one in node["parents"]
        }
        for node in nodes.values()
        if setting in node["label"]
    }
    clients = range(3)
    assert {name for name in arrows if name.startswith("train ")} == {f"train client {one}" for one in clients}
    for client in clients:
        statistics, trained = f"compute statistics of client {client}", f"train client {client}"
        assert arrows[statistics] == {trained}
        assert arrows[f"encode uploads of client {client}"] == {statistics}
    encoded = {f"encode uploads of client {client}" for client in clients}
    for method in ("fedavg", "fedfisher_diag"):
        assert arrows[f"aggregate {method}"] == encoded
        assert arrows[f"evaluate {method}"] == {f"aggregate {method}"}
