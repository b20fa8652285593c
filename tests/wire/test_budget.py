import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedfisher_core.errors import InputError
from fedfisher_core.wire.budget import Family, StatisticSpec, fedavg_bits, fit
from fedfisher_core.wire.codec import TensorSpec
from fedfisher_core.wire.elementwise import Float32, Root, Uniform
from fedfisher_core.wire.foremost import FOREMOST
from fedfisher_core.wire.formula import formula_bits
from fedfisher_core.wire.low_rank import LowRank
from fedfisher_core.wire.payload import encode
from fedfisher_core.wire.spectral import Spectral
from fedfisher_core.wire.structure import EXACT, Fixed
from fedfisher_core.wire.symmetric import SYMMETRIC

from .samples import CNN, LENET, diagonal, gram, kfac, random_tensors, weights

SMALL = ((5, 4), (4, 3))
COUNTS = StatisticSpec("label_counts", EXACT, (TensorSpec("counts", (3,)),))


def payload_bits(statistics: list[StatisticSpec], *, family: Family, budget_bits: int | None) -> int:
    generator = torch.Generator().manual_seed(0)
    schema = fit(statistics, family=family, budget_bits=budget_bits)
    sent = {statistic.name: random_tensors(statistic, generator) for statistic in statistics}
    return 8 * len(encode(schema, sent, num_examples=1))


@pytest.mark.parametrize(
    ("layers", "extra", "size", "rank", "extra_bits", "ratio"),
    [
        (LENET, kfac, 44_190, 50, 755_079, 1.03397),
        (LENET, gram, 44_190, 95, None, 1.04645),
        (LENET, diagonal, 44_190, None, 16 * 44_190, 1.0),
        (CNN, kfac, 939_616, 243, 15_775_251, 1.02466),
        (CNN, gram, 939_616, 419, None, 1.03987),
    ],
)
def test_the_papers_accounting(layers, extra, size, rank, extra_bits, ratio) -> None:
    statistics = [weights(layers), extra(layers)]
    schema = fit(statistics, family=Family.PAPER, budget_bits=fedavg_bits(statistics[0].size))
    assert schema.sections[0].codec == Uniform(15)
    assert schema.sections[1].codec == (Uniform(15) if rank is None else LowRank(rank, 8))
    total = formula_bits(schema)
    if extra_bits is not None:
        assert total == 16 * size + extra_bits
    assert total / (32 * size) == pytest.approx(ratio, abs=5e-6)


@pytest.mark.parametrize(("factor_bits", "rank"), [(17, 25), (9, 50), (5, 100)])
def test_in_the_papers_format_coarser_factors_leave_room_for_more_of_them(factor_bits: int, rank: int) -> None:
    statistics = [weights(LENET), kfac(LENET)]
    schema = fit(statistics, family=Family.PAPER, budget_bits=fedavg_bits(statistics[0].size), factor_bits=factor_bits)
    assert schema.sections[1].codec == LowRank(rank, factor_bits - 1)


@pytest.mark.parametrize("extra", [kfac, gram, diagonal])
def test_the_papers_payload_is_longer_than_its_accounting_by_header_scales_and_padding(extra) -> None:
    statistics = [weights(LENET), extra(LENET)]
    budget = fedavg_bits(statistics[0].size)
    formula = formula_bits(fit(statistics, family=Family.PAPER, budget_bits=budget))
    # The accounting counts the scales of low-rank factors, but not those of the model and of a diagonal.
    scales = 32 * 5 * (2 if extra is diagonal else 1)
    bits = payload_bits(statistics, family=Family.PAPER, budget_bits=budget)
    assert bits == 256 + 8 * -(-(formula + scales) // 8)


@pytest.mark.parametrize("extra", [kfac, gram, diagonal])
def test_ours_fills_the_fedavg_budget_without_exceeding_it(extra) -> None:
    statistics = [weights(LENET), extra(LENET), COUNTS]
    budget = fedavg_bits(statistics[0].size)
    bits = payload_bits(statistics, family=Family.FEDFISHER, budget_bits=budget)
    assert 0.99 * budget < bits <= budget
    schema = fit(statistics, family=Family.FEDFISHER, budget_bits=budget)
    assert schema.sections[0].codec == Uniform(15)
    assert isinstance(schema.sections[1].codec, Root if extra is diagonal else Spectral)
    assert schema.sections[2].codec == Float32()


def test_a_diagonal_loses_a_bit_only_where_the_scales_need_room() -> None:
    statistics = [weights(LENET), diagonal(LENET)]
    schema = fit(statistics, family=Family.FEDFISHER, budget_bits=fedavg_bits(statistics[0].size))
    # 10 scales take 320 bits, more than the 150 entries of the first layer, fewer than the 840 of the last.
    assert schema.sections[1].codec == Root((16, 16, 16, 16, 15))


SUBSETS = st.lists(
    st.sampled_from([weights(SMALL), diagonal(SMALL), kfac(SMALL), COUNTS]), min_size=1, max_size=4, unique=True
)


@given(SUBSETS, st.integers(256, 4000))
@settings(max_examples=60, deadline=None)
def test_ours_never_exceeds_a_budget(statistics: list[StatisticSpec], budget: int) -> None:
    try:
        fit(statistics, family=Family.FEDFISHER, budget_bits=budget)
    except InputError:
        assume(False)
    assert payload_bits(statistics, family=Family.FEDFISHER, budget_bits=budget) <= budget


@pytest.mark.parametrize("family", list(Family))
def test_without_a_budget_or_with_an_ample_one_nothing_is_lost(family: Family) -> None:
    statistics = [weights(SMALL), kfac(SMALL), diagonal(SMALL)]
    entries = sum(statistic.size for statistic in statistics)
    for budget in (None, 256 + 32 * entries):
        schema = fit(statistics, family=family, budget_bits=budget)
        assert {section.codec for section in schema.sections} == {Float32()}
        assert schema.bits == formula_bits(schema) + 256 == 256 + 32 * entries


@pytest.mark.parametrize("family", list(Family))
def test_weights_alone_are_what_fedavg_sends(family: Family) -> None:
    statistics = [weights(LENET)]
    schema = fit(statistics, family=family, budget_bits=fedavg_bits(statistics[0].size))
    assert schema.sections[0].codec == Float32()
    assert schema.bits == 32 * 44_190 + 256


@pytest.mark.parametrize(("family", "width"), [(Family.PAPER, 10), (Family.FEDFISHER, 9)])
def test_weights_alone_take_the_whole_of_a_smaller_budget(family: Family, width: int) -> None:
    statistics = [weights(LENET)]
    # Ours leaves room for the scales.
    schema = fit(statistics, family=family, budget_bits=256 + 10 * 44_190)
    assert schema.sections[0].codec == Uniform(width - 1)


def test_float32_is_refused_beyond_its_budget() -> None:
    statistics = [weights(LENET), kfac(LENET)]
    with pytest.raises(InputError, match=f"'float32' takes .* bits, the budget is {fedavg_bits(statistics[0].size)}"):
        fit(statistics, family=Family.FLOAT32, budget_bits=fedavg_bits(statistics[0].size))


@pytest.mark.parametrize("family", [Family.PAPER, Family.FEDFISHER])
@pytest.mark.parametrize("extra", [kfac, diagonal])
def test_a_hopeless_budget_is_refused(family: Family, extra) -> None:
    with pytest.raises(InputError, match="the budget is 300"):
        fit([weights(LENET), extra(LENET)], family=family, budget_bits=300)


def test_the_paper_has_no_format_for_two_more_statistics() -> None:
    statistics = [weights(LENET), kfac(LENET), diagonal(LENET)]
    with pytest.raises(InputError, match="'kfac', 'diagonal_fisher'; allowed: one beside the weights"):
        fit(statistics, family=Family.PAPER, budget_bits=fedavg_bits(statistics[0].size))


def test_statistics_without_entries_and_symmetric_ones_that_are_not_square_are_refused() -> None:
    with pytest.raises(InputError, match="'empty' has no entries"):
        fit([StatisticSpec("empty", EXACT, ())], family=Family.FLOAT32, budget_bits=None)
    with pytest.raises(InputError, match="'x' of statistic 'gram' has shape \\(2, 3\\)"):
        fit([StatisticSpec("gram", SYMMETRIC, (TensorSpec("x", (2, 3)),))], family=Family.FLOAT32, budget_bits=None)


@pytest.mark.parametrize(("family", "rest"), [(Family.FEDFISHER, Spectral), (Family.PAPER, LowRank)])
def test_what_stands_for_weights_has_their_part_of_a_budget(family: Family, rest: type) -> None:
    classes, features = 10, 784
    sums = StatisticSpec("sums", FOREMOST, (TensorSpec("sums", (classes, features)),))
    moment = StatisticSpec("moment", SYMMETRIC, (TensorSpec("moment", (features, features)),))
    counts = StatisticSpec("counts", EXACT, (TensorSpec("counts", (classes,)),))
    budget = fedavg_bits(classes * features + classes)
    schema = fit([counts, sums, moment], family=family, budget_bits=budget)
    assert schema.sections[1].codec == Uniform(15)
    assert isinstance(schema.sections[2].codec, rest)
    if family is Family.FEDFISHER:
        assert schema.sections[2].codec == Spectral(16 * classes * features - 32)
        assert schema.bits <= budget
    assert all(
        section.codec == Float32() for section in fit([counts, sums, moment], family=family, budget_bits=None).sections
    )


def test_the_paper_leaves_few_numbers_uncounted() -> None:
    model = weights(LENET)
    budget = fedavg_bits(model.size)
    most = budget // 16 // 32
    few, many = (StatisticSpec("counts", EXACT, (TensorSpec("counts", (size,)),)) for size in (most, most + 1))
    fit([model, few], family=Family.PAPER, budget_bits=budget)
    with pytest.raises(InputError, match=f"of which {32 * (most + 1)} are for numbers .* at most {budget // 16}"):
        fit([model, many], family=Family.PAPER, budget_bits=budget)


def test_the_paper_refuses_what_no_budget_shortens_beyond_it() -> None:
    codes = StatisticSpec("codes", Fixed(Uniform(7)), (TensorSpec("x", (100,)),))
    message = "the budget is 900 bits; allowed: at least 1088; of it, statistic 'codes' takes 832 by its own codec"
    with pytest.raises(InputError, match=message):
        fit([codes], family=Family.PAPER, budget_bits=900)
    assert fit([codes], family=Family.PAPER, budget_bits=1088).bits == 1088
