import pytest

from fedfisher_core.experiments.benchmark.remarks import remarks
from fedfisher_core.experiments.benchmark.rows import Row
from tests.experiments.benchmark.samples import make_row, render

MERGE = make_row("merge", method_settings={"method": "fisher_merge", "fisher_floor": 1e-6})


def diag(solver: str) -> Row:
    return make_row("diag", method_settings={"method": "fedfisher_diag", "solver": {"name": solver}})


def test_a_page_says_that_fisher_merge_is_fedfisher_in_closed_form() -> None:
    (remark,) = remarks([MERGE, diag("closed_form")])
    assert "FedFisher(Diag) is FisherMerge up to a floor" in remark
    assert "is below 1e-06" in remark
    assert "FisherMerge up to a floor" in render([MERGE, diag("closed_form")])


def test_a_page_that_chooses_settings_says_that_it_shows_no_results() -> None:
    rows = [make_row(held_out=5000, train_size=10_000)]
    sizes, apart = remarks(rows)
    assert "share 10,000 of the training examples" in sizes
    assert "are no results: they are of 5,000 training examples" in apart
    assert "No test example was looked at." in render(rows)


def test_clients_that_are_hardly_heard_are_counted() -> None:
    rows = [make_row("fedfisher_kfac", least_trace=trace, seed=seed) for seed, trace in enumerate((0.5, 3e-7, 0.009))]
    (remark,) = remarks(rows)
    assert "In 2 of 3 federations a client’s Fisher in `fedfisher_kfac`" in remark
    assert "the least 3e-07 of it" in remark
    assert remarks(rows[:1]) == []


@pytest.mark.parametrize("rows", [[MERGE], [diag("closed_form")], [MERGE, diag("paper")], [make_row()]])
def test_pages_without_both_say_nothing(rows: list[Row]) -> None:
    assert remarks(rows) == []
    assert "up to a floor" not in render(rows)


def test_a_page_says_whose_fishers_are_not_exact() -> None:
    estimators = ("truncated (0.01)", "exact", None, "truncated (0.01)")
    rows = [
        make_row(fisher=estimator, dataset=f"data{index % 3}", seed=index) for index, estimator in enumerate(estimators)
    ]
    (remark,) = remarks(rows)
    assert remark == "Fishers of data0 are not exact but truncated (0.01), as `fisher.estimator` has it."
    assert "not exact but truncated (0.01)" in render(rows)
    assert remarks(rows[1:3]) == []


def test_a_page_says_how_far_drawn_directions_put_fishers_off() -> None:
    rows = [make_row(fisher="monte_carlo (1)", fisher_scatter=scatter) for scatter in (0.0314, 0.2)]
    (remark,) = remarks(rows)
    assert "off by 3.1 to 20 % of its norm" in remark
    (remark,) = remarks([make_row(fisher="monte_carlo (1)", fisher_scatter=scatter) for scatter in (0.5, 2.877)])
    assert "off by 50 to 290 % of its norm" in remark
    (remark,) = remarks([make_row(fisher="truncated (0.01, 16 at most)", fisher_scatter=0.0)])
    assert remark.endswith("No direction had to be drawn.")


def test_a_page_says_how_clients_saw_their_images_and_what_was_measured() -> None:
    rows = [make_row(), *(make_row(shift="rotation", shift_strength=strength) for strength in (60.0, 30.0))]
    turned, measured = remarks(rows)
    assert turned.startswith("Under “rotation 30 or 60”, the images that each client trains on")
    assert "from minus to plus that many degrees" in turned
    assert "Only the worst client’s accuracy is of test images as each client sees its own." in measured
    assert "Test images and the server’s validation images are as they are." in render(rows)


def test_a_page_says_whose_labels_are_true() -> None:
    (remark,) = remarks([make_row(shift="labels", shift_strength=0.4)])
    assert remark.startswith("Under “labels 0.4”, that fraction of the clients")
    assert "have the true labels" in remark
    (remark,) = remarks([make_row(shift="labels", shift_strength=0.4, shift_classes=3)])
    assert remark.startswith("Under “labels 0.4 of 3 classes”, that fraction of the clients")
    assert "calls each of 3 classes, drawn as well, by the name of another" in remark


def test_numbers_that_were_cut_off_are_warned_of_by_method() -> None:
    rows = [
        make_row("tight", secure_clipped=0.25),
        make_row("tight", seed=1, secure_clipped=0.5),
        make_row("wide", secure_clipped=0.0),
    ]
    (warning,) = remarks(rows)
    assert warning.startswith("**Warning:** up to 50 % of the numbers in a secure sum of `tight` were cut off")


def test_coarse_secure_sums_are_warned_of_by_method() -> None:
    rows = [
        make_row("coarse", secure_rounding=0.25),
        make_row("coarse", seed=1, secure_rounding=0.5),
        make_row("fine", secure_rounding=1e-6),
        make_row("plain"),
    ]
    (warning,) = remarks(rows)
    assert warning.startswith("**Warning:** the secure sums of `coarse` are coarse: rounding puts one of them off")
    assert "50 % of its root mean square" in warning
    assert "\n" not in warning
