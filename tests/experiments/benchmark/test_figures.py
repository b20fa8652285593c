from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.figures import (
    accuracy_by_alpha_figure,
    accuracy_by_bits_figure,
    time_figure,
)
from fedfisher_core.experiments.benchmark.grids import confusion_figure, partition_figure
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.reporting.drawing import to_svg
from tests.experiments.benchmark.samples import make_row, make_rows

TWELVE = {f"method_{letter}": 0.3 + 0.04 * index for index, letter in enumerate("abcdefghijk")} | {"fedavg": 0.5}


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for axes in figure.axes for text in axes.texts}


def test_the_partition_figure_writes_counts_and_totals() -> None:
    counts = np.array([[12, 0, 3], [1500, 20, 12345]])
    figure = partition_figure(counts, ["a", "b", "c"], "title")
    assert {"12", "3", "1500", "20", "12k", "15", "13\u2009865"} <= texts(figure)
    assert "0" not in texts(figure)


@pytest.mark.parametrize(("clients", "classes"), [(5, 10), (50, 10), (5, 100), (50, 100)])
def test_the_labels_of_a_partition_figure_do_not_overlap(clients: int, classes: int) -> None:
    counts = np.random.default_rng(0).integers(0, 9000, (clients, classes))
    figure = partition_figure(counts, [f"class number {index}" for index in range(classes)], "title")
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(boxes))
    width, height = figure.get_size_inches()
    assert width <= 11
    assert height <= 10


def test_the_confusion_figure_writes_shares_of_the_true_class() -> None:
    figure = confusion_figure(np.array([[3, 1], [0, 0]]), ["a", "b"], "title")
    assert {"75", "25", "75.0", "–"} <= texts(figure)


@pytest.mark.parametrize(
    ("figure", "matrix"),
    [
        (partition_figure, np.ones((2, 3), int)),
        (partition_figure, np.array([[1, -1]])),
        (partition_figure, np.empty((0, 2), int)),
        (confusion_figure, np.ones((3, 2), int)),
    ],
)
def test_matrices_that_do_not_fit_are_refused(figure: object, matrix: np.ndarray) -> None:
    with pytest.raises(InputError):
        figure(matrix, ["a", "b"], "title")  # type: ignore[operator]


def test_a_partition_without_examples_can_be_drawn() -> None:
    assert to_svg(partition_figure(np.zeros((2, 2), int), ["a", "b"], "title"))


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
