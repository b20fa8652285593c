from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedfisher_core.communication.wire.budget import Family, StatisticSpec, fedavg_bits, fit, formula_bits
from fedfisher_core.communication.wire.codec import TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32, Root, Uniform
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.communication.wire.payload import decode, encode
from fedfisher_core.communication.wire.spectral import Spectral
from fedfisher_core.communication.wire.structure import EXACT, Fixed
from fedfisher_core.communication.wire.tensors import FOREMOST, SYMMETRIC
from fedfisher_core.engine.errors import InputError

from .samples import CNN, LENET, diagonal, gram, kfac, psd, random_tensors, weights

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
def test_the_count_of_the_papers_code_is_what_entries_and_the_scales_of_factors_take(
    layers, extra, size, rank, extra_bits, ratio
) -> None:
    statistics = [weights(layers), extra(layers)]
    schema = fit(statistics, family=Family.PAPER, budget_bits=fedavg_bits(statistics[0].size))
    model, beside = schema.sections
    assert model.codec == Uniform(15)
    assert beside.codec == (Uniform(15) if rank is None else LowRank(rank, 8))
    counted = beside.bits - (32 * len(layers) if rank is None else 0)
    if extra_bits is not None:
        assert counted == extra_bits
    assert (16 * size + counted) / (32 * size) == pytest.approx(ratio, abs=5e-6)


# The paper's s_q, of which its count has 32 / s_q bits an entry, and the bits that such an entry takes.
@pytest.mark.parametrize(("s_q", "factor_bits", "rank"), [(2, 17, 25), (4, 9, 50), (8, 5, 100)])
def test_the_papers_count_of_factors(s_q: int, factor_bits: int, rank: int) -> None:
    statistics = [weights(LENET), kfac(LENET)]
    schema = fit(statistics, family=Family.PAPER, budget_bits=fedavg_bits(statistics[0].size), factor_bits=factor_bits)
    assert schema.sections[1].codec == LowRank(rank, factor_bits - 1)
    sizes = [tensor.shape[0] for tensor in statistics[1].tensors]
    entries = sum(2 * size * min(rank, size) + min(rank, size) for size in sizes)
    assert formula_bits(schema) == 16 * 44_190 + 32 // s_q * entries <= 32 * 44_190
    assert schema.sections[1].bits == factor_bits * entries + 96 * len(sizes)


@pytest.mark.parametrize("extra", [kfac, gram, diagonal])
def test_the_papers_payload_is_longer_than_its_accounting_by_header_scales_signs_and_padding(extra) -> None:
    statistics = [weights(LENET), extra(LENET)]
    budget = fedavg_bits(statistics[0].size)
    schema = fit(statistics, family=Family.PAPER, budget_bits=budget)
    codec, matrices = schema.sections[1].codec, len(statistics[1].tensors)
    scales = 32 * len(LENET) + (3 * 32 * matrices if isinstance(codec, LowRank) else 32 * matrices)
    entries = (
        sum((2 * size + 1) * min(codec.rank, size) for size in (tensor.shape[0] for tensor in statistics[1].tensors))
        if isinstance(codec, LowRank)
        else 0
    )
    bits = payload_bits(statistics, family=Family.PAPER, budget_bits=budget)
    assert bits == 256 + 8 * -(-(formula_bits(schema) + scales + entries) // 8)


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


@pytest.mark.parametrize("whole", range(256 + 32 + 2 * 5 + 6, 256 + 32 + 16 * 5, 8))
def test_a_budget_of_other_lengths_is_one_of_whole_bytes(whole: int) -> None:
    # One of the seven lengths between has a bit more for each of five weights.
    five = [replace(weights(SMALL), tensors=(TensorSpec("w", (5,)),))]
    expected = fit(five, family=Family.FEDFISHER, budget_bits=whole)
    assert all(fit(five, family=Family.FEDFISHER, budget_bits=whole + more) == expected for more in range(1, 8))


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
    with pytest.raises(InputError, match="'kfac', 'diagonal_fisher'; allowed: one besides the weights"):
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


@pytest.mark.parametrize("family", [Family.PAPER, Family.FEDFISHER])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_diagonals_among_matrices_are_shortened_as_vectors(family: Family, share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "tokens.inputs": torch.rand(40, generator=generator),
        "tokens.outputs": psd(12, decay=2.0, generator=generator),
        "own.inputs": torch.rand(9, generator=generator),
    }
    spec = StatisticSpec("kfac", SYMMETRIC, tuple(TensorSpec(name, tuple(one.shape)) for name, one in tensors.items()))
    budget = int(share * 32 * spec.size)
    schema = fit([spec], family=family, budget_bits=budget)
    payload = encode(schema, {"kfac": tensors}, num_examples=1)
    if family is Family.FEDFISHER:
        assert 8 * len(payload) <= budget
    found = decode(payload, schema).statistics["kfac"]
    assert list(found) == list(tensors)
    for name, one in tensors.items():
        assert (found[name] - one).norm() < 0.2 * one.norm()
        assert one.ndim == 2 or (found[name] >= 0).all()
