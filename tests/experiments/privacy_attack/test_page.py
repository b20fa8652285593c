"""From rows to summaries, findings, tables and the page; the numbers are made up and round."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.privacy_attack.page import budget_charts, front_chart, report_files
from fedfisher_core.experiments.privacy_attack.rows import AttackRow
from fedfisher_core.experiments.privacy_attack.summary import attack_tables, blocks, compare_cases, summarise
from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.reporting.charts import to_html
from fedfisher_core.reporting.formats import as_text
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.pictures import Gallery
from fedfisher_core.reporting.rows import experiment_of_rows, read_rows, write_folder
from tests.reporting.pages import SCRIPT, Page

CASES = {"ensemble": "(i) local model", "fedavg": "(ii) sum of models", "otfusion": "(i) local model"}
ATTACKED = {"ensemble": (0.75, 1.0), "otfusion": (0.75, 1.0), "fedavg": (0.25, 0.5)}


def row(
    method: str, attacked: float, *, label: int, epsilon: float | None = None, reference: bool = False
) -> AttackRow:
    return AttackRow(
        benchmark="sample",
        experiment="privacy_attack",
        dataset="digits",
        model="" if reference else "mlp",
        num_clients=5,
        alpha=0.5,
        target_label=label,
        seed=0,
        epsilon=epsilon,
        method=method,
        method_settings={},
        case="floor: auxiliary images" if reference else CASES[method],
        attack_accuracy=attacked,
        mean_attack_accuracy=attacked / 2,
        feature_distance=3.0 + attacked,
        accuracy=None if reference else 0.9,
        upload_bits=None if reference else 64,
        attack_seconds=None if reference else 12.0,
        gan_seconds=30.0,
        evaluator_accuracy=0.99,
        reference=reference,
        artifact=f"key-{method}-{label}-{epsilon}",
    )


def rows(epsilon: float | None = None) -> list[AttackRow]:
    attacks = [
        row(method, attacked, label=label, epsilon=epsilon)
        for method, values in ATTACKED.items()
        for label, attacked in enumerate(values)
    ]
    return attacks + [row("noise", 0.125, label=label, reference=True) for label in (0, 1)]


GALLERY = Gallery("Digits", ("own", "found"), np.linspace(0, 1, 2 * 3 * 64).reshape(2, 3, 1, 8, 8))
PAGE = PageData(
    title="A <sample>",
    benchmark="sample",
    command="fedfisher run sample.yaml",
    created="2030-01-02 03:04 UTC",
    versions={"numpy": "9.9"},
    settings={"name": "sample"},
    settings_yaml="name: sample\n",
    notes="First.\n\n**Second**.",
    shown={"galleries": [GALLERY.shown()]},
)


def apart(epsilon: float | None = None) -> list[AttackRow]:
    """An attack through the output factors of one of the methods."""
    return [
        replace(one, factors=Factors.OUTPUTS, case="(i) local model, outputs alone", artifact=f"{one.artifact}-apart")
        for one in rows(epsilon)
        if one.method == "ensemble"
    ]


def html_of(of: list[AttackRow]) -> str:
    return report_files(of, PAGE)["index.html"].decode()


def terminal(of: list[AttackRow]) -> str:
    return as_text(attack_tables(of))


def test_summaries_gather_labels_and_seeds_and_put_references_last() -> None:
    summaries = summarise(rows()[::-1])
    assert {one.row.method for one in summaries} == {*ATTACKED, "noise"}
    assert summaries[-1].row.reference
    fedavg = next(one for one in summaries if one.row.method == "fedavg")
    assert sorted(fedavg.values("attack_accuracy")) == [0.25, 0.5]
    assert summaries[-1].values("accuracy") == []


def test_findings_pair_cases_by_label_and_seed() -> None:
    (finding,) = compare_cases(rows())
    assert (finding.more, finding.less) == ("(i) local model", "(ii) sum of models")
    assert finding.difference.mean == pytest.approx(0.5)
    # It is the same with both labels: how much others would scatter can't be told.
    assert finding.difference.interval is None


def test_the_terminal_shows_methods_floors_and_deviations() -> None:
    text = terminal(rows())
    assert text.startswith("digits, mlp, 2 trials\n")
    lines = text.splitlines()
    fedavg = next(line for line in lines if line.startswith("fedavg"))
    assert "(ii) sum of models" in fedavg
    assert "37.50 ± 17.68" in fedavg
    assert any(line.startswith("noise") and "12.50" in line for line in lines)


def test_budgets_have_blocks_of_their_own() -> None:
    text = terminal(rows() + rows(epsilon=2.0))
    assert [line for line in text.splitlines() if "trials" in line] == [
        "digits, mlp, 2 trials",
        "digits, mlp, epsilon 2, 2 trials",
    ]


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_the_page_is_whole_and_self_contained(epsilon: float | None) -> None:
    of = rows() + (rows(epsilon) if epsilon else [])
    html = html_of(of)
    assert html == html_of(of)
    page = Page(html)
    sources = [attributes["src"] or "" for tag, attributes in page.tags if tag == "img"]
    assert len(sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in page.tags)
    assert page.scripts[-1] == SCRIPT
    assert "A &lt;sample&gt;" in html
    assert "Second" in page.bold
    assert ("Differential privacy</h2>" in html) == (epsilon is not None)
    for one in of:
        assert one.artifact in html


def test_the_files_hold_the_rows(tmp_path: Path) -> None:
    files = report_files(rows(), PAGE)
    assert set(files) == {"index.html"}
    folder = write_folder(tmp_path / "sample", rows(), files, "digest")
    assert read_rows(folder / "results.json", AttackRow) == rows()
    assert experiment_of_rows(folder / "results.json") == "privacy_attack"


def test_attacks_that_differ_in_their_factors_stand_side_by_side() -> None:
    found = rows() + apart()
    assert len(summarise(found)) == len(summarise(rows())) + 1
    assert {(one.more, one.less) for one in compare_cases(found)} == {
        ("(i) local model", "(i) local model, outputs alone"),
        ("(i) local model", "(ii) sum of models"),
        ("(i) local model, outputs alone", "(ii) sum of models"),
    }
    explained = "What K-FAC gives away is taken apart here"
    html = html_of(found)
    assert explained in html
    assert explained not in html_of(rows())
    assert Page(html).text.count("Ensemble, outputs alone") >= 2
    assert any(
        line.startswith("ensemble") and "(i) local model, outputs alone" in line
        for line in terminal(found).splitlines()
    )


def test_the_front_joins_what_no_other_beats_in_accuracy_and_attack() -> None:
    found = [one for one in rows() + rows(epsilon=2.0) if not one.reference]
    private = [replace(one, accuracy=0.5, attack_accuracy=0.1) for one in found if one.epsilon]
    # An attack that recognises less says nothing of the upload.
    plain = [one for one in found if not one.epsilon]
    weaker = [replace(one, case=f"{one.case}, outputs alone", attack_accuracy=0.0) for one in plain]
    chart = front_chart([*private, *weaker, *plain])
    assert chart is not None
    drawn = [one for one in Page(to_html(chart)).drawn[0] if "front" in one]
    assert {one["name"]: (round(one["cost"], 6), round(one["gain"], 6), one["front"]) for one in drawn} == {
        "FedAvg": (37.5, 90.0, True),
        "OTFusion": (87.5, 90.0, False),
        "OTFusion, ε = 2": (10.0, 50.0, True),
        "FedAvg, ε = 2": (10.0, 50.0, False),
    }
    assert front_chart(plain) is None
    assert "Accuracy against what is given away" in html_of(rows() + rows(epsilon=2.0))


def test_over_budgets_an_attack_has_a_curve_and_a_model_has_one_whatever_is_attacked() -> None:
    charts = budget_charts(rows() + rows(epsilon=2.0) + apart() + apart(epsilon=2.0))
    accuracy, attacked = ([one for one in Page(to_html(chart)).drawn[0] if "x" in one] for chart in charts)
    assert {one["method"] for one in accuracy} == set(ATTACKED)
    assert {one["method"] for one in attacked} == {*ATTACKED, "ensemble, outputs alone"}
    assert [one["x"] for one in accuracy if one["method"] == "fedavg"] == ["2", "none"]


def test_a_sentence_says_what_the_attack_means_for_a_person() -> None:
    (block,) = blocks(rows())
    assert block.meaning == (
        "Of 100 images that a server makes of one client’s upload, a classifier recognises what the client holds in 88 "
        "(0 to 100) with OTFusion and in 38 (0 to 100) with FedAvg. Of images that it draws without any upload it does "
        "so in 12. Brackets hold 95 % intervals over trials."
    )


def test_methods_with_fewer_trials_are_not_named_as_the_least() -> None:
    fewer = [one for one in rows() if one.method != "fedavg" or one.target_label == 0]
    (block,) = blocks(fewer)
    assert "holds in 88 (0 to 100) with OTFusion and in 88 (0 to 100) with Ensemble." in block.meaning


def test_the_files_say_which_factors_are_compared_and_older_ones_are_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "sample", rows() + apart(), {}, "digest")
    assert read_rows(folder / "results.json", AttackRow) == rows() + apart()
    header, *lines = csv.reader((folder / "results.csv").read_text().splitlines())
    assert [dict(zip(header, line, strict=True))["factors"] for line in lines].count("outputs") == 2
    content = json.loads((folder / "results.json").read_text())
    for one in content:
        del one["factors"]
    (folder / "results.json").write_text(json.dumps(content[: len(rows())]))
    assert read_rows(folder / "results.json", AttackRow) == rows()
    (folder / "results.json").write_text(json.dumps([content[0] | {"factors": "none"}]))
    with pytest.raises(InputError, match="row 1, factors='none'"):
        read_rows(folder / "results.json", AttackRow)


@pytest.mark.parametrize("name", ["privacy_attack", "privacy_attack_weight", "privacy_demo", "differential_privacy"])
def test_committed_reports_are_read_as_attacks_on_all_factors(name: str) -> None:
    found = read_rows(Path(__file__).parents[3] / "reports" / name / "results.json", AttackRow)
    assert found
    assert all(row.factors is None and row.attack == row.method for row in found)


def test_foreign_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('[{"experiment": "privacy_attack"}]')
    with pytest.raises(InputError, match="no list of result rows: row 1 lacks the field 'benchmark'"):
        read_rows(tmp_path / "results.json", AttackRow)
