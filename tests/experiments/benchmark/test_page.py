import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.page import PartitionView, report_files
from fedfisher_core.experiments.benchmark.published import COLUMNS, PublishedResult
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.failures import FailedJob
from tests.experiments.benchmark.samples import make_page, make_row, make_rows, render
from tests.reporting.pages import SORTING, Page
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
    for part in ("A paper, Table 7", "(4 runs)", "+11.00", "+5.50", "above: 1. no deviation published: 1."):
        assert part in page.text
    assert "above" in page.bold
    assert "agree" not in page.text
    assert "Published, and not run here: svhn, mlp, 5 clients, α = 0.1." in page.text


def test_the_answer_comes_first_and_what_made_it_last(page: Page) -> None:
    parts = ("Answer", "Comparison with published", "Notes", "Every pair", "Every setting", "What ran")
    headings = [words.strip() for words in page.words if words.strip()]
    places = [next(i for i, text in enumerate(headings) if text.startswith(part) and i > 20) for part in parts]
    assert places == sorted(places)
    assert page.text.index("71.00 ± 0.87") < page.text.index("In each of the 2 settings one method leads: kfac")
    assert page.text.index("one method leads") < page.text.index("Comparison with published numbers above")


def test_every_pair_is_shown_with_its_test(page: Page) -> None:
    for part in ("2 tests on this page", "3 pairs, 1 told apart", "1 pair, 1 told apart", "no test", "< 0.001"):
        assert part in page.text
    assert "Mean ranks by accuracy over 2 settings" in page.text
    assert "Left out, as they did not run with every seed of every setting: dense" in page.text


def test_an_ensemble_is_one_shot_and_apart_for_its_networks(page: Page) -> None:
    assert "Ensembles: one shot too (Guha et al. 2019)" in page.text
    assert "ensemble (5 networks)" in page.text


def test_what_is_below_the_clients_own_models_is_marked(page: Page) -> None:
    assert "dense below local 40.00" in page.text
    assert "dense below local (1 seed)" in page.text
    assert "kfac below local" not in page.text
    assert "fedavg below local" not in page.text


def test_failed_clients_are_said_before_any_result(page: Page) -> None:
    assert page.text.index("Clients failed") < page.text.index("71.00")
    assert "Clients failed" not in Page(render([make_row()])).text


def test_both_bounds_on_epsilon_are_shown_where_there_are_any(page: Page) -> None:
    rows = [make_row(seed=seed, epsilon=7.996, audited_epsilon=audited) for seed, audited in ((0, 1.234), (1, None))]
    shown = Page(render(rows)).text
    for part in ("Differential privacy", "1.23", "8.00", "not audited"):
        assert part in shown
    assert "Differential privacy" not in page.text


def test_every_row_is_traced_to_its_artifact(page: Page) -> None:
    for row in ROWS:
        assert row.artifact in page.text


def test_the_page_asks_for_nothing_outside_itself(page: Page, html: str) -> None:
    for name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
        assert all(value.startswith(("#", "data:")) for value in page.values(name))
    names = {tag for tag, _ in page.tags}
    assert not names & {"link", "iframe", "object", "embed", "base", "form"}
    assert page.scripts == [SORTING]
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
    assert page.scripts == [SORTING]
    assert page.text.count(evil) >= 10


def test_a_page_of_many_methods_and_settings_stays_below_a_megabyte() -> None:
    methods = {f"method_number_{index}": 0.4 + 0.02 * index for index in range(19)} | {"fedavg": 0.5}
    rows = make_rows(methods, seeds=5, alphas=(0.01, 0.05, 0.1, 0.5, 1.0))
    counts = np.random.default_rng(0).integers(0, 6000, (10, 10))
    partitions = [PartitionView(f"split {index}", 0, counts, [str(label) for label in range(10)]) for index in range(5)]
    assert len(render(rows, partitions=partitions).encode()) < 1e6


@pytest.mark.parametrize(("models", "listed"), [("ab", 1188), ("a", 594)])
def test_a_page_of_many_networks_and_settings_stays_below_a_megabyte(models: str, listed: int) -> None:
    methods = {f"method_number_{index}": 0.5 for index in range(21)} | {"fedavg": 0.5}
    one = make_rows(methods, seeds=3, alphas=(0.05, 0.1, 0.5))
    cells = itertools.product(models, (5, 10, 30), one)
    rows = [replace(row, model=model, num_clients=clients) for model, clients, row in cells]
    rng, classes = np.random.default_rng(0), [str(label) for label in range(10)]
    partitions = [
        PartitionView(f"split {index}", 0, rng.integers(0, 6000, (clients, 10)), classes)
        for index, clients in enumerate((5, 10, 30) * 3)
    ]
    text = render(rows, partitions=partitions)
    assert len(text.encode()) < 1e6
    # What is left out is said, or stands in a table.
    page = Page(text)
    assert f"{listed} rows are too many for a page: results.csv has them." in page.text
    assert ("means over settings and seeds" in page.text) == (models == "ab")
    assert "Accuracy against upload" not in page.text


def test_of_very_many_pairs_those_that_are_told_apart_are_listed() -> None:
    best = [make_row("best", seed=seed, accuracy=accuracy) for seed, accuracy in enumerate([0.9, 0.9101, 0.9199])]
    methods = {f"method_number_{index}": 0.5 for index in range(63)} | {"fedavg": 0.5}
    page = Page(render([*make_rows(methods), *best]))
    assert "more than 2,000 pairs" in page.text
    # Equal accuracies are not told apart: each of 64 methods is listed beside the best, and no two others.
    assert "2080 pairs, 64 told apart" in page.text
    assert page.text.count("bestmethod_number_8") == 1
    assert "method_number_7method_number_8" not in page.text
    few = Page(render([*make_rows({"fedavg": 0.5, "kfac": 0.5}), *best]))
    assert "The lists below" not in few.text


def test_only_a_row_of_splits_is_said_to_have_an_order() -> None:
    one, several = (
        render(make_rows({"fedavg": 0.5, "regmean": 0.6}, alphas=alphas)) for alphas in ((0.1,), (0.1, 1.0))
    )
    assert "from left to right" not in one
    assert "from left to right" in several


def test_a_single_seed_shows_no_deviation() -> None:
    page = Page(render(make_rows({"fedavg": 0.5, "kfac": 0.6}, seeds=1), partitions=()))
    assert "±" not in page.text
    assert "+10.00" in page.text
    assert "confidence interval" not in page.text
    assert "No method leads, as a test needs two seeds: the most accurate is kfac." in page.text
    assert "Labels of each client" not in page.text


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
        f"A paper,Table {table},tiny,tiny,dirichlet_client,3,0.5,fedavg,{30 + table},1," for table in (1, 2, 3)
    ]
    (workplace / "reports/published_results.csv").write_text("\n".join([",".join(COLUMNS), *published, ""]))
    made = walk_tiny(workplace, {"fedavg": {}}, report={"published": wanted})
    rows = list(made.rows.values())
    files = report_files(made.plan, made.outcome, rows, make_page())
    assert set(files) == {"index.html", "accuracy.png"}
    assert files["accuracy.png"].startswith(b"\x89PNG")
    text = Page(files["index.html"].decode()).text
    for part in ("tiny, tiny, 3 clients", "Labels of each client", rows[0].artifact):
        assert part in text
    assert [table for table in (1, 2, 3) if f"A paper, Table {table}" in text] == shown


def test_what_was_not_counted_is_said() -> None:
    counted = Page(render([make_row(client_encode_seconds=0.25, start_sent="seed")])).text
    assert "0.25" in counted
    assert "not counted" not in counted
    assert "not counted" in Page(render([make_row()])).text


def test_what_failed_is_said_where_its_number_would_be() -> None:
    rows = make_rows({"fedavg": 0.5, "kfac": 0.6}, seeds=1)
    other = replace(rows[0], alpha=0.9)
    failed = (FailedJob("kfac: alpha=0.9", "ValueError: <b>out of paper</b>", ("report",)),)
    cells = {(Setting.of(other), "kfac"): failed[0].reason}
    page = Page(render([*rows, other], failed=failed, failed_cells=cells))
    assert "kfac: alpha=0.9ValueError: <b>out of paper</b>1 job" in page.text
    assert "kfacfailed: ValueError: <b>out of paper</b>" in page.text
    assert "Failed" not in Page(render(rows)).text


def test_the_first_method_is_shown_beside_the_others_over_settings() -> None:
    rows = [
        make_row(method, alpha=float(alpha), seed=seed, accuracy=accuracy + 0.01 * seed * (method == "kfac"))
        for alpha in range(1, 7)
        for method, accuracy in {"kfac": 0.9, "fedavg": 0.8}.items()
        for seed in range(2)
    ]
    shown = Page(render(rows)).text
    assert "kfac beside each other method, over 6 settings" in shown
    assert "fedavg60+10.50 [+4.15, +16.85]+10.500.031" in shown
    fewer = Page(render(rows[:20])).text
    assert "kfac beside each other method, over 5 settings" in fewer
    assert "fedavg50+10.50 [+4.15, +16.85]+10.50no test" in fewer
    assert "Fewer than 6 settings give no test over settings." in fewer
    assert "beside each other method" not in Page(render(rows[:4])).text
