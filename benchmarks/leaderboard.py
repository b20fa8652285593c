"""How long a leaderboard of many entries takes to open and to sort in a browser.

python -m benchmarks.leaderboard
"""

import itertools
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.leaderboard.entries import make_entries, read_reports
from fedfisher_core.experiments.leaderboard.page import render_leaderboard
from fedfisher_core.reporting.rows import write_rows

_REPORTS, _ALPHAS, _CLIENTS, _METHODS = 10, 10, 5, 20
_REPEATS = 5
# From the request to the first picture after the script has drawn the table.
_OPENED = """
const done = arguments[0];
requestAnimationFrame(() => setTimeout(() => done(performance.now())));
"""
_SORTED = """
const done = arguments[0], begun = performance.now();
document.querySelector("[data-column=accuracy] button").click();
requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
"""


def write_reports(folder: Path) -> None:
    """Write made-up results, one seed each."""
    for report in range(_REPORTS):
        combinations = itertools.product(range(_ALPHAS), range(_CLIENTS), range(_METHODS))
        rows = [_row(report, alpha, clients, method) for alpha, clients, method in combinations]
        write_rows(rows, folder / f"report_{report}")


def _row(report: int, alpha: int, clients: int, method: int) -> Row:
    return Row(
        benchmark=f"report_{report}",
        dataset="mnist",
        model="mlp",
        partition="dirichlet_client",
        alpha=0.1 * (1 + alpha),
        num_clients=5 * (1 + clients),
        num_rounds=1,
        seed=0,
        method=f"method_{method}",
        method_settings={"method": f"method_{method}", "wire": {"budget": "fedavg"}},
        uploads={"weights": "sum"},
        accuracy=((7 * report + 13 * alpha + 29 * clients + 31 * method) % 997) / 997,
        loss=1.0,
        worst_client_accuracy=0.1,
        worst_class_accuracy=0.1,
        client_train_seconds=100.0,
        client_statistics_seconds={},
        server_seconds=0.123 * (1 + method),
        upload_bits=7_071_680,
        upload_bits_formula=7_070_400,
        download_bits=7_070_400,
        peak_memory_bytes=2**20,
        uses_validation=False,
        reference=False,
        failed_clients=[],
        artifact="0" * 24,
    )


def main() -> None:
    """Print the size of the page and the median seconds."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        print("chromium and chromedriver are not installed: nothing was measured")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_reports(folder)
        begun = time.perf_counter()
        reports = read_reports([folder])
        entries = make_entries(reports.benchmarks)
        html = render_leaderboard(reports, entries, out=folder, command="python", created="now")
        page = folder / "index.html"
        page.write_text(html)
        made = time.perf_counter() - begun
        print(f"{len(entries):,} entries: made in {made:.1f} s, {page.stat().st_size / 2**20:.2f} MiB")
        options = Options()
        options.binary_location = chromium
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
            options.add_argument(argument)
        with webdriver.Chrome(service=Service(driver), options=options) as browser:
            opened, ordered = [], []
            for _ in range(_REPEATS):
                browser.get(page.as_uri())
                opened.append(browser.execute_async_script(_OPENED) / 1000)
                ordered.append(browser.execute_async_script(_SORTED) / 1000)
        print(f"opened in {statistics.median(opened):.2f} s, slowest {max(opened):.2f} s; target below 2 s")
        print(f"sorted in {statistics.median(ordered):.2f} s")


if __name__ == "__main__":
    main()
