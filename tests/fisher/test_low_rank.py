import pytest
import torch
from torch import Tensor

from fedfisher_core.fisher.kronecker import Kronecker, KroneckerSum
from fedfisher_core.fisher.low_rank import TOLERANCE, LowRankSum, low_rank, shortened

ROWS, COLUMNS = 6, 40


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def factor_of_rank(rank: int, *, seed: int) -> Tensor:
    rows = normal(rank, COLUMNS, seed=seed)
    return rows.T @ rows


def sum_of_ranks(*ranks: int) -> KroneckerSum:
    outputs = [normal(ROWS, ROWS, seed=100 + seed) for seed in range(len(ranks))]
    blocks = [
        Kronecker(factor_of_rank(rank, seed=seed), one @ one.T)
        for seed, (rank, one) in enumerate(zip(ranks, outputs, strict=True))
    ]
    return KroneckerSum.of(blocks, [0.1 * (seed + 1) for seed in range(len(ranks))])


@pytest.mark.parametrize("ranks", [(3,), (3, 5, 1)])
def test_few_directions_make_the_same_operator(ranks: tuple[int, ...]) -> None:
    total = sum_of_ranks(*ranks)
    short = shortened(total)
    assert isinstance(short, LowRankSum)
    assert short.right.shape == (len(ranks) * max(ranks), COLUMNS)
    vector = normal(ROWS, COLUMNS, seed=7)
    assert torch.allclose(short.product(vector), total.product(vector), rtol=1e-9)
    assert torch.allclose(short.diagonal(), total.diagonal(), rtol=1e-9)


def test_one_client_of_many_directions_keeps_the_sum_as_it_is() -> None:
    total = sum_of_ranks(3, COLUMNS)
    assert shortened(total) is total


def test_what_is_left_out_is_below_the_tolerance() -> None:
    vectors = torch.linalg.qr(normal(COLUMNS, COLUMNS, seed=1)).Q
    values = torch.logspace(0, -12.5, COLUMNS, dtype=torch.float64)
    matrix = vectors @ torch.diag(values) @ vectors.T
    pair = low_rank(matrix, most=30)
    assert pair is not None
    left, right = pair
    assert torch.linalg.matrix_norm(matrix - left @ right) <= TOLERANCE * torch.linalg.matrix_norm(matrix)
    # One direction less would be too few.
    rank = len(right)
    assert values[rank - 1 :].norm() > TOLERANCE * values.norm()


def test_a_matrix_of_too_many_directions_is_not_factored() -> None:
    assert low_rank(factor_of_rank(12, seed=2), most=11) is None
    assert low_rank(factor_of_rank(12, seed=2), most=12) is not None


def test_factors_need_not_be_symmetric() -> None:
    # As the paper's format makes them, which rounds left and right singular vectors apart.
    matrix = normal(COLUMNS, 4, seed=3) @ normal(4, COLUMNS, seed=4)
    pair = low_rank(matrix, most=10)
    assert pair is not None
    assert torch.allclose(pair[0] @ pair[1], matrix)


def test_zeros_have_no_directions() -> None:
    pair = low_rank(torch.zeros(COLUMNS, COLUMNS), most=10)
    assert pair is not None
    assert torch.equal(pair[0] @ pair[1], torch.zeros(COLUMNS, COLUMNS))
