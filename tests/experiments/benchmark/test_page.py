import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.failures import FailedJob
from fedfisher_core.experiments.benchmark.figures import partition_grid
from fedfisher_core.experiments.benchmark.page import PartitionView, report_files, shown_of
from fedfisher_core.experiments.benchmark.published import COLUMNS, PublishedResult
from fedfisher_core.experiments.benchmark.summary import Setting
from tests.experiments.benchmark.samples import make_page, make_row, make_rows, render
from tests.reporting.pages import SCRIPT, Page
from tests.walked import walk_tiny

# Differences to FedAvg of 20.5, 19.5 and 20 points: a difference that is the same in every seed has no test.
_WOBBLE = {0: 0.005, 1: -0.005, 2: 0.0}
ROWS = [
    *make_rows({"fedavg": 0.5}, alphas=(0.1, None)),
    *(replace(row, accuracy=row.accuracy + _WOBBLE[row.seed]) for row in make_rows({"kfac": 0.7}, alphas=(0.1, None))),
    *(
        make_row("local", reference=True, accuracy=0.45, seed=seed, method_settings={"method": "local_mean"})
        for seed in range(3)
    ),
    *(make_row("ensemble", reference=True, accuracy=0.95, upload_bits=0, seed=seed) for seed in range(3)),
    make_row("dense", failed_clients=[4], accuracy=0.4, uses_validation=True),
]
PUBLISHED = (
    PublishedResult("A paper", "Table 7", "mnist", "mlp", "dirichlet", 5, 0.1, "kfac", 0.6, 0.02, 4),
    PublishedResult("A paper", "Table 7", "svhn", "mlp", "dirichlet", 5, 0.1, "kfac", 0.6, 0.02),
    PublishedResult("A paper", "Table 7", "mnist", "mlp", "dirichlet", 5, 0.1, "fedavg", 0.6, None),
)


@pytest.fixture(scope="module")
def html() -> str:
    return render(ROWS, published=PUBLISHED)


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


def test_the_page_names_the_weights_that_clients_started_from() -> None:
    page = Page(render(ROWS, weights={"tiny": "SHA-256 0123; MIT"}))
    assert "Weights of tiny" in page.text
    assert "SHA-256 0123; MIT" in page.text


def test_the_page_holds_the_results(page: Page) -> None:
    for part in (
        "71.00 ± 0.87",
        "+20.00 [+18.76, +21.24]",
        "References: no one-shot method",
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
    for part in ("A paper, Table 7", "(4 runs)", "+11.00", "+5.50", "above: 1. no deviation published: 1."):
        assert part in page.text
    assert "above" in page.bold
    assert "agree" not in page.text
    assert "Published, and not run here: svhn, mlp, 5 clients, α = 0.1." in page.text


def test_the_answer_and_its_chart_come_first_and_what_made_it_last(page: Page, html: str) -> None:
    parts = [
        "kfac leads",
        "Bars are 95 % intervals",
        "Setting by setting",
        "Accuracies",
        "How sure it is",
        "Notes",
        "Costs",
    ]
    places = [page.text.index(part) for part in [*parts, "Comparison with published", "What ran", "Every row"]]
    assert places == sorted(places)
    assert html.index("kfac leads") < html.index("<svg") < html.index("Setting by setting")


def test_how_the_leader_compares_with_each_other_stands_before_tests_within_settings(page: Page, html: str) -> None:
    assert "kfac compared with each other method" in page.text
    assert "FedAvg+20.00+18.76 to +21.2423" in page.text
    assert "Within single settings, 2 tests of two methods each were made." in page.text
    # In each of the two settings.
    assert html.count('<th scope="col">is shown to be above</th>') == 2


def test_where_no_test_decides_one_sentence_says_so() -> None:
    rows = [
        make_row(method, seed=seed, accuracy=0.5 + 0.1 * (seed == place))
        for place, method in enumerate("ab")
        for seed in (0, 1)
    ]
    text = Page(render(rows)).text
    assert "Within single settings the seeds decide nothing: the only test of two methods finds no difference." in text
    assert "there is no test" in Page(render(rows[::2])).text


def test_an_ensemble_is_apart_for_its_networks(page: Page) -> None:
    assert "Ensembles: clients get several networks" in page.text
    groups = {one["name"]: one.get("group") for one in page.drawn[0]}
    assert groups["Ensemble (1 of 2 settings)"] == "Ensembles"
    assert groups["References:"] is None


def test_what_is_below_the_clients_own_models_is_marked(html: str) -> None:
    marked = re.findall(r'data-method="(\w+)">(?:(?!</tr>).)*class="below"', html, re.DOTALL)
    assert marked == ["dense"]


def test_failed_clients_are_said_before_any_result(page: Page) -> None:
    assert page.text.index("Clients failed") < page.text.index("71.00")
    assert "Clients failed" not in Page(render([make_row()])).text


def test_both_bounds_on_epsilon_are_shown_where_there_are_any(page: Page) -> None:
    rows = [make_row(seed=seed, epsilon=7.996, audited_epsilon=audited) for seed, audited in ((0, 1.234), (1, None))]
    shown = Page(render(rows)).text
    for part in ("Differential privacy", "1.23", "8.00", "not audited"):
        assert part in shown
    assert "Differential privacy" not in page.text


def test_the_page_asks_for_nothing_but_the_script_of_its_charts(page: Page, html: str) -> None:
    assert page.values("src") == ["../assets/vega.js"]
    for name in ("href", "xlink:href", "srcset", "action", "data", "poster"):
        assert all(value.startswith("#") or value == "results.csv" for value in page.values(name))
    names = {tag for tag, _ in page.tags}
    assert not names & {"link", "iframe", "object", "embed", "base", "form"}
    assert page.scripts[-1] == SCRIPT
    assert len(page.scripts) == 1 + len(page.charts)
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_identifiers_are_unique(page: Page) -> None:
    identifiers = page.values("id")
    assert len(identifiers) == len(set(identifiers))
    assert set(page.values("aria-labelledby")) <= set(identifiers)


def test_tables_have_headers_with_scope(page: Page) -> None:
    scopes = [attributes.get("scope") for tag, attributes in page.tags if tag == "th"]
    assert scopes
    assert set(scopes) <= {"col", "row", "rowgroup"}
    assert ("html", {"lang": "en"}) in page.tags


def test_equal_reports_give_equal_bytes(html: str) -> None:
    assert render(ROWS[::-1], published=PUBLISHED) == html


def test_html_in_texts_is_shown_not_used() -> None:
    evil = "<script>alert(1)</script> & <b>"
    rows = [make_row(evil, method_settings={"a": evil}, artifact=evil), make_row(dataset=evil)]
    page = Page(
        render(
            rows,
            title=evil,
            command=evil,
            notes=evil,
            settings={evil: evil},
            settings_yaml=evil,
            versions={evil: evil},
        )
    )
    assert "b" not in {tag for tag, _ in page.tags}
    assert page.scripts[-1] == SCRIPT
    assert len(page.scripts) == 1 + len(page.charts)
    assert page.text.count(evil) >= 8


def test_a_page_of_many_methods_and_settings_stays_below_half_a_megabyte() -> None:
    methods = {f"method_number_{index}": 0.5 for index in range(21)} | {"fedavg": 0.5}
    one = make_rows(methods, seeds=3, alphas=(0.05, 0.1, 0.5))
    cells = itertools.product("ab", (5, 10, 30), one)
    rows = [replace(row, model=model, num_clients=clients) for model, clients, row in cells]
    rng, classes = np.random.default_rng(0), [str(label) for label in range(10)]
    partitions = [
        PartitionView(partition_grid(rng.integers(0, 6000, (clients, 10)), classes, f"split {index}"), 0)
        for index, clients in enumerate((5, 10, 30) * 3)
    ]
    assert len(render(rows, partitions=partitions).encode()) < 5e5


def test_a_single_seed_shows_no_deviation() -> None:
    page = Page(render(make_rows({"fedavg": 0.5, "kfac": 0.6}, seeds=1), partitions=()))
    assert "±" not in page.text
    assert "+10.00" in page.text
    assert "One seed gives no interval." in page.text
    assert "one seed shows no lead" in page.text
    assert "Data of each client" not in page.text


def test_published_numbers_without_a_match_are_said() -> None:
    assert "No published number is known" in render([make_row()], published=())


def test_a_report_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        render([])


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [("A paper, Table 2", [2]), (["A paper, Table 2", "A paper, Table 3"], [2, 3])],
    ids=["one table", "two tables"],
)
def test_the_files_of_a_report_show_the_federations_that_were_walked(
    workplace: Path, wanted: str | list[str], shown: list[int]
) -> None:
    (workplace / "reports").mkdir()
    published = [
        f"A paper,Table {table},tiny,tiny,dirichlet_client,3,0.5,fedavg,accuracy,{30 + table},1,,"
        for table in (1, 2, 3)
    ]
    (workplace / "reports/published_results.csv").write_text("\n".join([",".join(COLUMNS), *published, ""]))
    made = walk_tiny(workplace, {"fedavg": {}}, report={"published": wanted})
    rows = list(made.rows.values())
    files = report_files(rows, make_page(shown=shown_of(made.plan, made.outcome)))
    assert set(files) == {"index.html", "accuracy.png"}
    assert files["accuracy.png"].startswith(b"\x89PNG")
    text = Page(files["index.html"].decode()).text
    for part in (
        "tiny, tiny, 3 clients",
        "Labels of each client: 1 split",
        "tiny, 3 clients, dirichlet_client, α = 0.5",
    ):
        assert part in text
    assert [table for table in (1, 2, 3) if f"A paper, Table {table}" in text] == shown


def test_what_failed_is_said_where_its_number_would_be() -> None:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.6}, seeds=1)
    other = replace(rows[0], alpha=0.9)
    failed = (FailedJob("kfac: alpha=0.9", "ValueError: <b>out of paper</b>", ("report",)),)
    cells = {(Setting.of(other), "kfac"): failed[0].reason}
    page = Page(render([*rows, other], failed=failed, failed_settings=cells))
    assert "kfac: alpha=0.9ValueError: <b>out of paper</b>1 job" in page.text
    assert "kfac failed in α = 0.9: ValueError: <b>out of paper</b>" in page.text
    assert "ValueError: <b>out of paper</b>" in page.values("title")
    assert "Failed" not in Page(render(rows)).text
