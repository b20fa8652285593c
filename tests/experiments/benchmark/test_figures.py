from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedfisher_core.experiments.benchmark.figures import (
    accuracy_by_alpha_figure,
    accuracy_by_bits_figure,
    time_figure,
)
from fedfisher_core.experiments.benchmark.rows import Row
from tests.experiments.benchmark.samples import make_row, make_rows

TWELVE = {f"method_{letter}": 0.3 + 0.04 * index for index, letter in enumerate("abcdefghijk")} | {"fedavg": 0.5}


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for axes in figure.axes for text in axes.texts}


@pytest.mark.parametrize(
    "rows",
    [
        make_rows(TWELVE, seeds=5, alphas=(0.05, 0.1, 0.3)),
        make_rows({"fedavg": 0.5}, seeds=1),
        make_rows({"kfac": 0.5, "fedavg": 0.4}, alphas=(None,)),
        [make_row("a label that is so long that it must be broken into lines, $as$ any_would_agree")],
        [make_row(upload_bits=0), make_row("central", upload_bits=0, reference=True)],
        [make_row(dataset=f"a_data_set_with_a_name_{end}") for end in "abc"],
    ],
    ids=["full", "single", "iid", "long", "no-upload", "three-data-sets"],
)
def test_figures_of_rows_are_drawn_without_overflow(rows: list[Row]) -> None:
    for figure in (accuracy_by_alpha_figure(rows), accuracy_by_bits_figure(rows), time_figure(rows)):
        figure.draw_without_rendering()
        page = figure.get_window_extent()
        box = figure.get_tightbbox().transformed(figure.dpi_scale_trans)
        assert box.x0 >= page.x0 - 1
        assert box.x1 <= page.x1 + 1
        assert box.y0 >= page.y0 - 1
        assert box.y1 <= page.y1 + 1


def test_names_of_many_shifts_stand_side_by_side() -> None:
    shifts = [("blur", 3.0), ("contrast", 0.9), ("labels", 0.4), ("noise", 1.0), ("rotation", 60.0), ("contrast", 0.25)]
    rows = [make_row(model=model, shift=shift, shift_strength=by) for model in "ab" for shift, by in shifts]
    rows += [make_row(model=model, partition=scheme) for model in "ab" for scheme in ("iid", "quantity")]
    figure = accuracy_by_alpha_figure(rows)
    figure.draw_without_rendering()
    for axes in figure.axes:
        places = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert len(places) == 8
        assert all(left.x1 < right.x0 for left, right in pairwise(places))


def test_accuracies_are_drawn_in_per_cent_with_the_deviation() -> None:
    figure = accuracy_by_alpha_figure(make_rows({"fedavg": 0.5}, alphas=(0.1, 0.3)))
    (axes,) = figure.axes
    (container,) = axes.containers
    data, _, (bars,) = container.lines  # type: ignore[misc]
    np.testing.assert_allclose(data.get_ydata().astype(float), [51, 51])
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [50, 52])


def test_every_upload_is_within_the_panel() -> None:
    rows = [make_row(), make_row("kfac", upload_bits=50_000_000, accuracy=0.9)]
    (axes,) = accuracy_by_bits_figure(rows).axes
    for container in axes.containers:
        x, y = container.lines[0].get_data()  # type: ignore[union-attr]
        assert axes.get_xlim()[0] < x[0] < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < y[0] < axes.get_ylim()[1]


def test_seconds_are_written_beside_their_bars() -> None:
    rows = [make_row(client_statistics_seconds={"kfac": 1.5, "gram": 1.0}, seed=seed) for seed in range(2)]
    assert texts(time_figure(rows)) == {"10", "2.5", "0.5"}
