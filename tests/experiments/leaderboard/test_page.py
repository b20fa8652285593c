import json
from dataclasses import replace
from pathlib import Path

from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.reporting.rows import read_rows, write_rows
from tests.experiments.benchmark.samples import make_row
from tests.experiments.leaderboard.boards import scored, write_board
from tests.reporting.pages import SCRIPT, Page

EVIL = "<!--<script>alert(1)</script>\u2028& \"'"


def data_of(page: Page) -> dict[str, list]:
    return json.loads(page.scripts[-2])


def test_the_page_carries_every_entry_and_asks_for_the_script_of_its_charts_alone(tmp_path: Path) -> None:
    rows = [*scored("fedavg", 0.25, 0.5), *scored("kfac", 0.75), *scored("ensemble", 0.9, reference=True)]
    html = write_board(tmp_path, {"one": rows, "two": [*scored("fedavg", 0.5), *scored("a, variant", 0.4)]})
    page = Page(html)
    data = data_of(page)
    assert data["methods"] == ["a, variant", "ensemble", "fedavg", "kfac"]
    assert data["names"][2] == "FedAvg"
    assert [entry[:8] for entry in data["entries"]] == [
        [0, 3, 0, 0, 1, {"0": 0.75}, None, 1],
        [0, 2, 0, 0, 1, {"0": 0.25, "1": 0.5}, 1.0, 1],
        [0, 1, 1, 0, 5, {"0": 0.9}, None, 1],
        [1, 2, 0, 0, 1, {"0": 0.5}, 1.0, 2],
        [1, 0, 0, 0, 1, {"0": 0.4}, 2.0, 2],
    ]
    assert data["links"] == {"one": "../one/index.html", "two": "../two/index.html"}
    # Student's quantile with one degree of freedom.
    assert data["student"] == [None, None, 12.7062]
    assert page.scripts[-3] == SCRIPT
    assert page.values("src") == ["../assets/vega.js"]
    assert page.values("href") == ["results.csv"]
    assert "Methods in 2 settings of 2 reports; results.csv has all 5 entries." in page.text
    assert write_board(tmp_path, {}) == html


def test_what_an_attack_recognises_is_read_from_its_report(tmp_path: Path) -> None:
    attacks = [attack("kfac", 0.25), attack("kfac, compressed", 0.5), attack("fedavg", 0.75), attack("fedavg, x", 1.0)]
    write_rows(attacks, tmp_path / "privacy_attack")
    data = data_of(
        Page(write_board(tmp_path, {"one": [*scored("fedavg", 0.5), *scored("kfac", 0.6), *scored("c", 0.1)]}))
    )
    assert dict(zip(data["methods"], data["attacked"], strict=True)) == {"c": None, "fedavg": 75.0, "kfac": 50.0}


def attack(method: str, accuracy: float) -> AttackRow:
    return replace(
        read_rows(Path(__file__).parents[3] / "reports/privacy_demo/results.json", AttackRow)[0],
        method=method,
        attack_accuracy=accuracy,
    )


def test_what_no_entry_has_is_no_column(tmp_path: Path) -> None:
    columns = Page(write_board(tmp_path / "plain", {"one": scored("fedavg", 0.5)})).values("data-column")
    assert not {"epsilon", "training"} & set(columns)
    rows = scored("fedavg", 0.5, epsilon=1.0, training={"epochs": 1})
    more = Page(write_board(tmp_path / "more", {"one": rows})).values("data-column")
    assert set(more) - set(columns) == {"epsilon", "training"}
    assert {"track", "validation", "server", "upload", "rank"} <= set(columns)


def test_objectives_are_shown_where_clients_have_others_than_the_plain_one(tmp_path: Path) -> None:
    plain = write_board(tmp_path / "plain", {"one": scored("fedavg", 0.5)})
    assert "Objective" not in Page(plain).text
    both = write_board(tmp_path / "both", {"one": [*scored("fedavg", 0.5), *scored("fedavg", 0.6, objective="prox")]})
    assert 'data-column="objective"' in both
    assert '<select name="objective">' in both
    data = data_of(Page(both))
    place = data["setting_fields"].index("objective")
    assert [setting[place] for setting in data["settings"]] == ["plain", "prox"]


def test_names_are_data_and_no_markup(tmp_path: Path) -> None:
    evil = [make_row(EVIL, dataset=EVIL, model=EVIL, partition=EVIL, objective=EVIL, track=EVIL, training={EVIL: EVIL})]
    folder = 'a"><b>#?:'
    page = Page(write_board(tmp_path, {folder: evil}))
    assert len(page.scripts) == 3
    assert "b" not in {tag for tag, _ in page.tags}
    data = data_of(page)
    assert data["methods"] == [EVIL]
    assert data["settings"][0][:4] == [folder, EVIL, EVIL, EVIL]
    assert list(data["links"].values()) == ["../a%22%3E%3Cb%3E%23%3F%3A/index.html"]


def test_reports_that_are_left_out_are_named(tmp_path: Path) -> None:
    (tmp_path / "<i>attack").mkdir()
    (tmp_path / "<i>attack/results.json").write_text('[{"experiment": "privacy_<i>", "artifact": "key"}]')
    page = Page(write_board(tmp_path, {"one": scored("fedavg", 0.5)}))
    assert "Reports that are left out" in page.text
    assert "<i>attack (privacy <i>)" in page.text
    assert "i" not in {tag for tag, _ in page.tags}
    assert "../%3Ci%3Eattack/index.html" in page.values("href")


def test_a_shift_has_a_column_and_a_filter_where_there_is_one(tmp_path: Path) -> None:
    plain = Page(write_board(tmp_path / "plain", {"one": scored("fedavg", 0.5)}))
    assert "shift" not in plain.values("data-column") + plain.values("name")
    shifted = Page(write_board(tmp_path / "more", {"one": scored("fedavg", 0.5, shift="blur", shift_strength=2.0)}))
    assert "shift" in shifted.values("data-column")
    assert "shift" in shifted.values("name")
    assert "blur 2" in data_of(shifted)["settings"][0]


def test_a_sentence_says_who_leads_the_best_effort_and_charts_show_costs(tmp_path: Path) -> None:
    rows = [
        row
        for alpha in range(1, 4)
        for method, accuracy in {"kfac": 0.9, EVIL: 0.8, "fedavg": 0.7}.items()
        for row in scored(method, accuracy, accuracy + 0.01 * (method == "kfac"), alpha=alpha / 2, track="best_effort")
    ]
    html = write_board(tmp_path, {"one": rows})
    page = Page(html)
    assert (
        "Best effort: kfac leads all 2 methods that share most settings with it. It is 10.5 points (4.1 to" in page.text
    )
    assert "First in the track best effort: kfac" in page.text
    assert EVIL not in html
    assert len(page.charts) == 2
    rows += [row for alpha in range(1, 4) for row in scored("b", 0.95, 0.8, alpha=alpha / 2, track="best_effort")]
    level = Page(write_board(tmp_path / "level", {"one": rows})).text
    assert "Best effort: no method leads. kfac has the best mean rank; it is 3.0 points (−" in level
    assert "First in the track" not in Page(write_board(tmp_path / "none", {"one": scored("kfac", 0.5)})).text
