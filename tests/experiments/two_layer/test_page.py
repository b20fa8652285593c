"""From errors to rows, curves, findings and the page; most numbers are made up and round."""

import csv
import itertools
from dataclasses import fields, replace
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.two_layer.findings import (
    Band,
    Curve,
    curve_of,
    error_tables,
    steps_finding,
    width_finding,
)
from fedfisher_core.experiments.two_layer.page import error_chart, report_files
from fedfisher_core.experiments.two_layer.plan import Errors, SeedErrors
from fedfisher_core.experiments.two_layer.rows import METHODS, TwoLayerRow, rows_of
from fedfisher_core.experiments.two_layer.settings import TwoLayerGrid
from fedfisher_core.reporting.charts import to_html
from fedfisher_core.reporting.formats import as_text
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.rows import experiment_of_rows, read_rows, write_folder, write_rows
from tests.reporting.pages import SCRIPT, Page

SETTINGS = TwoLayerGrid(widths=(8, 16, 32), steps=(1, 2, 4, 8), steps_of_widths=5, width_of_steps=64, seeds=(0, 1, 2))
FALLING = (8.0, 4.0, 2.0)
TRADE_OFF = (8.0, 2.0, 1.0, 4.0)


def errors(fedfisher: float) -> Errors:
    return Errors(fedfisher=fedfisher, fedavg=16.0, local=0.25)


def rows(widths: tuple[float, ...] = FALLING, steps: tuple[float, ...] = TRADE_OFF) -> list[TwoLayerRow]:
    """Three seeds whose errors are the given ones times 1/2, 1 and 2."""
    return [
        row
        for seed in SETTINGS.seeds
        for row in rows_of(
            "sample",
            SETTINGS,
            seed,
            SeedErrors(
                widths=tuple(errors(2.0 ** (seed - 1) * value) for value in widths),
                steps=tuple(errors(2.0 ** (seed - 1) * value) for value in steps),
            ),
            f"key{seed}",
        )
    ]


PAGE = PageData(
    title="A <sample>",
    benchmark="sample",
    command="fedfisher run sample.yaml",
    created="2030-01-02 03:04 UTC",
    versions={"numpy": "9.9"},
    settings={"name": "sample", "two_layer": SETTINGS.model_dump(mode="json")},
    settings_yaml="name: sample\n",
    notes="First.\n\n**Second**.",
)


def test_rows_are_of_all_kinds_of_models() -> None:
    assert tuple(field.name for field in fields(Errors)) == METHODS


def steps_curve(*means: float) -> Curve:
    return curve_of(rows(steps=means), "local_steps")


def width_curve(*means: float) -> Curve:
    return curve_of(rows(widths=means), "width")


def test_a_band_is_the_geometric_mean_times_and_over_the_geometric_deviation() -> None:
    band = Band((2.0, 4.0, 8.0))
    assert band.mean == pytest.approx(14 / 3)
    assert band.geometric_mean == pytest.approx(4)
    assert band.factor == pytest.approx(2)
    assert (band.low, band.high) == (pytest.approx(2), pytest.approx(8))


@pytest.mark.parametrize(("values", "centre"), [((3.0,), 3.0), ((0.0, 4.0), 0.0)])
def test_a_single_seed_and_a_perfect_fit_have_no_deviation(values: tuple[float, ...], centre: float) -> None:
    band = Band(values)
    assert band.factor is None
    assert band.low == band.high == pytest.approx(centre)


def test_curves_gather_the_rows_of_all_seeds() -> None:
    for curve, values, fixed in (
        (curve_of(rows()[::-1], "width"), SETTINGS.widths, 5),
        (curve_of(rows()[::-1], "local_steps"), SETTINGS.steps, 64),
    ):
        assert tuple(point.value for point in curve.points) == values
        assert (curve.fixed, curve.seeds) == (fixed, (0, 1, 2))
        assert curve.points[0].bands["fedfisher"].errors == (4.0, 8.0, 16.0)
        assert curve.points[0].bands["fedavg"].errors == (16.0, 16.0, 16.0)


def test_the_chart_shows_the_bands() -> None:
    (drawn,) = Page(to_html(error_chart(curve_of(rows(), "width")))).drawn
    points = [one for one in drawn if one["method"] == "fedfisher" and "x" in one]
    assert [one["x"] for one in points] == list(SETTINGS.widths)
    for one, middle in zip(points, FALLING, strict=True):
        assert (one["low"], one["y"], one["high"]) == pytest.approx((middle / 2, middle, middle * 2))


@pytest.mark.parametrize(
    ("means", "agrees", "words"),
    [
        ((8.0, 4.0, 2.0), "yes", "falls from each width to the next. From width 8 to 32"),
        ((8.0, 1.0, 2.0), "in part", "rises from 16 to 32."),
        ((2.0, 4.0, 8.0), "no", "rises from 8 to 16, from 16 to 32."),
        ((2.0, 1.0, 2.0), "no", "rises from 16 to 32."),
    ],
)
def test_the_error_must_fall_with_every_width(means: tuple[float, ...], agrees: str, words: str) -> None:
    finding = width_finding(width_curve(*means))
    assert finding.agrees == agrees
    assert words in finding.measured
    assert f"falls in {3 if means[-1] < means[0] else 0} of 3 seeds" in finding.measured


@pytest.mark.parametrize(
    ("means", "agrees", "words"),
    [
        ((8.0, 2.0, 1.0, 4.0), "yes", "lowest, 1.00, at 4 local steps. At 8 steps it is 4.00; 3 of 3 seeds"),
        ((4.0, 8.0, 1.0, 2.0), "in part", "Before that it rises from 1 to 2."),
        ((8.0, 1.0, 4.0, 2.0), "in part", "After that it falls from 4 to 8."),
        ((8.0, 4.0, 2.0, 1.0), "no", "No rise is seen in this range."),
        ((1.0, 2.0, 4.0, 8.0), "no", "at 1 local steps."),
    ],
)
def test_the_error_must_fall_and_rise_with_the_local_steps(means: tuple[float, ...], agrees: str, words: str) -> None:
    finding = steps_finding(steps_curve(*means))
    assert finding.agrees == agrees
    assert words in finding.measured


def test_curves_of_too_few_points_say_nothing() -> None:
    width, steps = width_curve(*FALLING), steps_curve(*TRADE_OFF)
    one = Curve(name="width", fixed=5, seeds=width.seeds, points=width.points[:1])
    two = Curve(name="local_steps", fixed=64, seeds=steps.seeds, points=steps.points[:2])
    assert width_finding(one).agrees == steps_finding(two).agrees == "too few points"


def test_a_single_seed_decides_nothing() -> None:
    for finding, curve in ((width_finding, width_curve(*FALLING)), (steps_finding, steps_curve(*TRADE_OFF))):
        assert finding(curve).agrees == "yes"
        assert finding(replace(curve, seeds=curve.seeds[:1])).agrees == "a single seed"


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = rows(widths=(1 / 3, 1e-30, 0.1))
    write_folder(tmp_path, written, {}, "digest")
    assert read_rows(tmp_path / "results.json", TwoLayerRow) == written
    with (tmp_path / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(line["training_error"]) for line in table] == [row.training_error for row in written]
    assert {(line["curve"], line["method"]) for line in table} == set(
        itertools.product(("width", "local_steps"), ("fedfisher", "fedavg", "local"))
    )


def test_results_of_this_experiment_are_recognised(tmp_path: Path) -> None:
    write_rows(rows(), tmp_path)
    assert experiment_of_rows(tmp_path / "results.json") == "two_layer"
    other = tmp_path / "other.json"
    for text in ('[{"benchmark": "demo"}]', "[]", "{", '"two_layer"'):
        other.write_text(text)
        assert experiment_of_rows(other) is None
    assert experiment_of_rows(tmp_path / "absent.json") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('"seed": 0', "row 1 lacks the field 'seed'"),
        ('"curve": "width"', "row 1 lacks the field 'curve'"),
        ("]", "Invalid JSON"),
    ],
)
def test_damaged_results_are_refused(tmp_path: Path, change: str, message: str) -> None:
    write_rows(rows(), tmp_path)
    path = tmp_path / "results.json"
    path.write_text(path.read_text().replace(change, '"odd": 1'))
    with pytest.raises(InputError, match=message):
        read_rows(path, TwoLayerRow)


def test_the_page_holds_what_was_measured_and_what_had_to_be_chosen() -> None:
    html = report_files(rows(), PAGE)["index.html"].decode()
    page = Page(html)
    for part in (
        "A <sample>",
        "fedfisher run sample.yaml",
        "3 seeds (0, 1, 2)",
        "falls from each width to the next",
        "at 4 local steps",
        "steps_of_widths",
        "The text that this follows has lost its numbers",
        "4.674.00 ×÷ 2.00",
        "key2",
        "Second",
    ):
        assert part in page.text
    assert page.bold.count("yes") == 2
    assert len([tag for tag, _ in page.tags if tag == "svg"]) == 2
    assert not [tag for tag, _ in page.tags if tag in ("link", "img")]
    assert page.scripts[-1] == SCRIPT
    assert report_files(rows(), PAGE)["index.html"].decode() == html


def test_the_terminal_shows_the_means_of_both_curves() -> None:
    table = as_text(error_tables(rows())).splitlines()
    assert table[0] == "mean training error by width (3 seeds); as predicted: yes"
    assert table[3].split() == ["8", "9.33", "16.0", "0.250"]
    assert table[-1].split() == ["8", "4.67", "16.0", "0.250"]
