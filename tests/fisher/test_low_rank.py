from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedfisher_core.communication.wire.codec import BitReader, BitWriter, TensorSpec
from fedfisher_core.communication.wire.spectral import Spectral
from fedfisher_core.fisher.kronecker import Kronecker, KroneckerSum
from fedfisher_core.fisher.low_rank import TOLERANCE, LowRankSum, ShiftedLowRank, low_rank, shortened

ROWS, COLUMNS = 6, 40


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def factor_of_rank(rank: int, *, seed: int) -> Tensor:
    rows = normal(rank, COLUMNS, seed=seed)
    return rows.T @ rows


def whole(found: ShiftedLowRank) -> Tensor:
    left, right = found.left.double(), found.right.double()
    return found.shift * torch.eye(len(left), dtype=torch.float64) + left @ right


def sum_of_ranks(*ranks: int) -> KroneckerSum:
    outputs = [normal(ROWS, ROWS, seed=100 + seed) for seed in range(len(ranks))]
    blocks = [
        Kronecker(factor_of_rank(rank, seed=seed), one @ one.T)
        for seed, (rank, one) in enumerate(zip(ranks, outputs, strict=True))
    ]
    return KroneckerSum.of(blocks, [0.1 * (seed + 1) for seed in range(len(ranks))])


def check_shortened(total: KroneckerSum, ranks: Sequence[int]) -> None:
    """Make sure that a sum is found to have these ranks, and stays the same operator."""
    short = shortened(total)
    assert isinstance(short, LowRankSum)
    assert short.ranks == tuple(ranks)
    assert short.right.shape == (sum(ranks), COLUMNS)
    vector = normal(ROWS, COLUMNS, seed=7)
    assert torch.allclose(short.product(vector), total.product(vector), rtol=1e-9)
    assert torch.allclose(short.diagonal(), total.diagonal(), rtol=1e-9)


@pytest.mark.parametrize("ranks", [(3,), (3, 5, 1)])
def test_few_directions_make_the_same_operator(ranks: tuple[int, ...]) -> None:
    total = sum_of_ranks(*ranks)
    check_shortened(total, ranks)


def test_one_client_of_many_directions_keeps_the_sum_as_it_is() -> None:
    total = sum_of_ranks(3, COLUMNS)
    assert shortened(total) is total


@pytest.mark.parametrize("shift", [1e-5, 1e-2])
def test_one_number_may_stand_for_the_directions_that_a_budget_left_out(shift: float) -> None:
    shifts, ranks = (shift, 0.0, 3 * shift), (3, 5, 1)
    blocks = []
    for seed, (rank, own) in enumerate(zip(ranks, shifts, strict=True)):
        kept = factor_of_rank(rank, seed=seed) + own * torch.eye(COLUMNS, dtype=torch.float64)
        gradients = normal(ROWS, ROWS, seed=100 + seed)
        blocks.append(Kronecker(kept, gradients @ gradients.T))
    total = KroneckerSum.of(blocks, [0.5, 0.3, 0.2])
    check_shortened(total, ranks)


def test_a_factor_that_the_codec_cut_is_short() -> None:
    vectors = torch.linalg.qr(normal(COLUMNS, COLUMNS, seed=1)).Q
    matrix = vectors @ torch.diag(torch.logspace(0, -4, COLUMNS, dtype=torch.float64)) @ vectors.T
    codec, writer = Spectral(budget=2_000), BitWriter()
    codec.encode({"inputs": matrix.float().numpy()}, writer)
    decoded = codec.decode([TensorSpec("inputs", (COLUMNS, COLUMNS))], BitReader(writer.to_bytes()))
    cut = torch.from_numpy(decoded["inputs"])
    found = low_rank(cut, most=COLUMNS // 2)
    assert found is not None
    assert found.shift > TOLERANCE
    assert torch.linalg.matrix_norm(cut - whole(found)) <= TOLERANCE * torch.linalg.matrix_norm(cut)


@pytest.mark.parametrize("symmetric", [True, False])
def test_what_is_left_out_is_below_the_tolerance(symmetric: bool) -> None:
    vectors, others = (torch.linalg.qr(normal(COLUMNS, COLUMNS, seed=seed)).Q for seed in (1, 2))
    values = torch.logspace(0, -12.5, COLUMNS, dtype=torch.float64)
    matrix = vectors @ torch.diag(values) @ (vectors if symmetric else others).T
    found = low_rank(matrix, most=30)
    assert found is not None
    assert torch.linalg.matrix_norm(matrix - whole(found)) <= TOLERANCE * torch.linalg.matrix_norm(matrix)
    # The pivots of a symmetric matrix are held to the sum of what is left out.
    assert len(found.right) <= int((values > (TOLERANCE / COLUMNS if symmetric else TOLERANCE)).sum()) + 2


def test_a_matrix_of_too_many_directions_is_not_factored() -> None:
    assert low_rank(factor_of_rank(12, seed=2), most=11) is None
    assert low_rank(factor_of_rank(12, seed=2), most=12) is not None


def test_factors_need_not_be_symmetric() -> None:
    # As the paper's format makes them, which rounds left and right singular vectors apart.
    matrix = normal(COLUMNS, 4, seed=3) @ normal(4, COLUMNS, seed=4)
    found = low_rank(matrix, most=10)
    assert found is not None
    assert found.shift == 0
    assert torch.allclose(whole(found), matrix)


def test_zeros_have_no_directions() -> None:
    found = low_rank(torch.zeros(COLUMNS, COLUMNS), most=10)
    assert found is not None
    assert not whole(found).any()


def test_a_multiple_of_the_identity_has_none_beside() -> None:
    found = low_rank(0.3 * torch.eye(COLUMNS, dtype=torch.float64), most=10)
    assert found is not None
    assert len(found.right) <= 1
    assert torch.allclose(whole(found), 0.3 * torch.eye(COLUMNS, dtype=torch.float64))
