import numpy as np
import pytest
import torch

from fedfisher_core.communication.wire.codec import Array, TensorSpec
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.engine.errors import InputError

from .samples import psd
from .test_elementwise import through


def rounded(values: Array) -> Array:
    largest = np.abs(values).max()
    return largest * np.round(255 * values / largest) / 255


@pytest.mark.parametrize("rank", [4, 30])
def test_is_the_product_of_quantised_singular_vectors(rank: int) -> None:
    matrix = psd(20, decay=1.0, generator=torch.Generator().manual_seed(0)).numpy()
    left, singular, right = torch.linalg.svd(torch.from_numpy(matrix))
    kept = min(rank, 20)
    expected = (rounded(left[:, :kept].numpy()) * rounded(singular[:kept].numpy())) @ rounded(right[:kept].numpy())
    np.testing.assert_allclose(through(LowRank(rank), {"x": matrix})["x"], expected, atol=1e-6)


def test_costs_nine_bits_an_entry_and_three_scales() -> None:
    assert LowRank(7).bits([TensorSpec("a", (20, 20)), TensorSpec("g", (5, 5))]) == (
        9 * (2 * 20 * 7 + 7) + 96 + 9 * (2 * 5 * 5 + 5) + 96
    )


def test_a_zero_matrix_stays_zero() -> None:
    assert not through(LowRank(3), {"x": np.zeros((6, 6), dtype=np.float32)})["x"].any()


def test_other_tensors_and_ranks_are_refused() -> None:
    with pytest.raises(InputError, match="'x' has shape \\(4,\\)"):
        LowRank(2).bits([TensorSpec("x", (4,))])
    with pytest.raises(InputError, match="rank is 0"):
        LowRank(0)
