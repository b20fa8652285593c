import json
from pathlib import Path

from tests.experiments.benchmark.samples import make_row
from tests.leaderboard.boards import scored, write_board
from tests.reporting.pages import SORTING, Page

EVIL = "<!--<script>alert(1)</script>\u2028& \"'"


def data_of(page: Page) -> dict[str, list]:
    return json.loads(page.scripts[0])


def test_the_page_carries_every_entry_and_asks_for_nothing(tmp_path: Path) -> None:
    rows = [*scored("fedavg", 0.25, 0.5), *scored("kfac", 0.75), *scored("ensemble", 0.9, reference=True)]
    html = write_board(tmp_path, {"one": rows, "two": scored("fedavg", 0.5)})
    page = Page(html)
    data = data_of(page)
    assert data["methods"] == ["ensemble", "fedavg", "kfac"]
    assert [entry[:9] for entry in data["entries"]] == [
        [0, 2, 0, 1, 0.75, None, 1, None, 1],
        [0, 1, 0, 1, 0.375, round(0.125 * 2**0.5, 9), 2, 1.0, 1],
        [0, 0, 1, 5, 0.9, None, 1, None, 1],
        [1, 1, 0, 1, 0.5, None, 1, 1.0, 1],
    ]
    assert data["links"] == {"one": "../one/index.html", "two": "../two/index.html"}
    assert [data["methods"][index] for index in data["chosen"]] == ["fedavg"]
    assert page.scripts[1] == SORTING
    for name in ("src", "xlink:href", "srcset", "action"):
        assert page.values(name) == []
    assert page.values("href") == ["results.csv"]
    assert "4 entries: every method in every setting of 2 reports, 2 settings in all" in page.text
    assert "An ensemble keeps several networks, mostly those of all clients" in page.text
    assert write_board(tmp_path, {}) == html


def test_what_no_entry_has_is_no_column(tmp_path: Path) -> None:
    columns = Page(write_board(tmp_path / "plain", {"one": scored("fedavg", 0.5)})).values("data-column")
    assert not {"epsilon", "training"} & set(columns)
    rows = scored("fedavg", 0.5, epsilon=1.0, training={"epochs": 1})
    more = Page(write_board(tmp_path / "more", {"one": rows})).values("data-column")
    assert set(more) - set(columns) == {"epsilon", "training"}
    assert {"track", "validation", "server", "upload", "rank"} <= set(columns)
    assert "ensemble" not in Page((tmp_path / "plain/leaderboard/index.html").read_text()).text.lower()


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


def test_the_first_of_a_track_is_shown_beside_the_others(tmp_path: Path) -> None:
    rows = [
        row
        for alpha in range(1, 7)
        for method, accuracy in {"kfac": 0.9, EVIL: 0.8}.items()
        for row in scored(method, accuracy, alpha=float(alpha), track="best_effort")
    ]
    html = write_board(tmp_path, {"one": rows})
    page = Page(html)
    assert "First in the track best effort kfac has the best mean rank, 1.00 among 2 methods, over the 6" in page.text
    assert "critical difference 0.80" in page.text
    assert "60+10.00+10.000.031" in page.text
    assert EVIL not in html
    assert "First in the track" not in Page(write_board(tmp_path / "none", {"one": scored("kfac", 0.5)})).text
