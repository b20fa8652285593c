from xml.etree import ElementTree

import pytest

from fedfisher_core.experiments.benchmark.ranking import Ranking, rank_methods
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import summarise
from fedfisher_core.reporting.rank_diagram import rank_diagram
from tests.experiments.benchmark.samples import make_row, make_rows

SVG = "{http://www.w3.org/2000/svg}"


def settings(orders: list[str]) -> list[Row]:
    """A setting for each order of methods, the best first."""
    return [
        make_row(method, alpha=float(number + 1), accuracy=0.9 - 0.1 * place, seed=seed)
        for number, order in enumerate(orders)
        for place, method in enumerate(order)
        for seed in range(2)
    ]


def test_mean_ranks_by_hand() -> None:
    ranking = rank_methods(summarise(settings(["abc", "acb", "bac"])))
    assert ranking is not None
    assert ranking.methods == ("a", "b", "c")
    assert ranking.mean_ranks == pytest.approx((4 / 3, 2.0, 8 / 3))
    assert ranking.num_settings == 3
    # Demsar's quantile for three methods, 2.343, times sqrt(3 * 4 / (6 * 3)).
    assert ranking.critical_difference == pytest.approx(2.343 * (12 / 18) ** 0.5, abs=2e-3)
    assert ranking.p_value is not None


def test_methods_that_tie_share_their_rank() -> None:
    ranking = rank_methods(summarise(make_rows({"a": 0.5, "b": 0.5, "c": 0.1}, alphas=(0.1, 0.3))))
    assert ranking is not None
    assert dict(zip(ranking.methods, ranking.mean_ranks, strict=True)) == {"a": 1.5, "b": 1.5, "c": 3.0}


def test_methods_with_gaps_or_fewer_seeds_are_left_out() -> None:
    rows = settings(["abcd", "abcd"])
    rows = [row for row in rows if (row.method, row.alpha) != ("d", 2.0) and (row.method, row.seed) != ("c", 1)]
    # A setting without any single network is none of those that are ranked.
    for others in ([], [make_row("ensemble", reference=True, alpha=9.0)]):
        ranking = rank_methods(summarise([*rows, *others]))
        assert ranking is not None
        assert (ranking.methods, ranking.left_out, ranking.p_value) == (("a", "b"), ("c", "d"), None)
        assert ranking.num_settings == 2


@pytest.mark.parametrize("orders", [["abc"], ["a", "a"], ["ab", "ca"]])
def test_too_little_to_rank_is_no_ranking(orders: list[str]) -> None:
    ranking = rank_methods(summarise(settings(orders)))
    assert ranking is None


def ranked(*mean_ranks: float, critical_difference: float, names: str = "abcdefgh") -> Ranking:
    methods = tuple(names[: len(mean_ranks)])
    return Ranking(methods, mean_ranks, 9, critical_difference, 0.5, (), ())


def test_bars_join_the_largest_groups_that_are_not_told_apart() -> None:
    assert ranked(1, 2, 3, 5, critical_difference=1.5).groups == [(0, 1), (1, 2)]
    assert ranked(1, 2, 3, 4, critical_difference=5).groups == [(0, 3)]
    assert ranked(1, 3, 5, critical_difference=1).groups == []


def test_the_diagram_shows_every_method_with_its_rank() -> None:
    ranking = ranked(1.25, 2.5, 3.75, 4.5, critical_difference=2.0)
    svg = rank_diagram(ranking)
    drawn = ElementTree.fromstring(svg)
    texts = ["".join(one.itertext()) for one in drawn.iter(f"{SVG}text")]
    assert {"a (1.25)", "b (2.50)", "c (3.75)", "d (4.50)", "critical difference 2.00", "1", "5"} <= set(texts)
    assert svg == rank_diagram(ranking)
    bars = [one for one in drawn.iter(f"{SVG}path") if "stroke-width" in one.attrib]
    assert len(bars) == len(ranking.groups) == 2


def test_labels_stay_within_the_diagram() -> None:
    long = "a_method_with_quite_a_long_label"
    drawn = ElementTree.fromstring(rank_diagram(Ranking((long, "b", "c"), (1.0, 2.0, 3.0), 9, 40.0, 0.5, (), ())))
    width, height = (float(drawn.attrib[name]) for name in ("width", "height"))
    for text in drawn.iter(f"{SVG}text"):
        x, y, length = float(text.attrib["x"]), float(text.attrib["y"]), 6.8 * len("".join(text.itertext()))
        assert 0 < y < height
        if text.attrib.get("text-anchor") == "end":
            assert x - length > 0
        elif "difference" not in "".join(text.itertext()):
            assert x < width


def test_names_are_text_and_not_markup() -> None:
    drawn = ElementTree.fromstring(rank_diagram(Ranking(("<b> & c", "d"), (1.0, 2.0), 9, 1.0, None, (), ())))
    assert "<b> & c (1.00)" in ["".join(one.itertext()) for one in drawn.iter(f"{SVG}text")]


def test_the_first_is_compared_over_settings_and_over_seeds() -> None:
    rows = [
        make_row(method, alpha=float(number), seed=seed, accuracy=0.5 + gain * (1 + seed) * number / 100)
        for number in range(1, 7)
        for method, gain in {"a": 2.0, "b": 0.0}.items()
        for seed in range(2)
    ]
    ranking = rank_methods(summarise(rows))
    assert ranking is not None
    (beside,) = ranking.beside_first
    assert (beside.ahead.other, beside.ahead.wins, beside.ahead.losses) == ("b", 6, 0)
    assert beside.over_seeds is not None
    # With seed 0 the gain is 0.02 n over settings n of 1 to 6, with seed 1 twice that.
    assert beside.over_seeds.mean == pytest.approx(0.105) == beside.ahead.mean
    assert beside.over_seeds.deviation == pytest.approx(0.07 / 2**0.5)
    fewer = rank_methods(summarise([row for row in rows if row.alpha != 1.0]))
    assert fewer is not None
    (beside,) = fewer.beside_first
    assert (beside.ahead.wins, beside.ahead.p_value) == (5, None)
    assert beside.over_seeds is not None
    assert beside.over_seeds.mean == pytest.approx(0.12)
