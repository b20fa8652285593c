"""One entry that is no finite number is found wherever it is."""

import math

import pytest
import torch

from fedfisher_core.engine.arithmetic import is_finite


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("place", [0, 517, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_bad_entry_is_found(bad: float, place: int, dtype: torch.dtype) -> None:
    tensor = torch.linspace(-1, 1, 1001, dtype=dtype)
    tensor[place] = bad
    assert not is_finite(tensor)
    assert not is_finite(torch.nn.Parameter(tensor))
    # A view whose memory has gaps.
    assert not is_finite(tensor.expand(3, -1).T)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.linspace(-1, 1, 1001),
        torch.full((4, 5), torch.finfo(torch.float32).max),
        torch.tensor([[1, -(2**40)]]),
        torch.tensor(3.0),
        torch.empty(0, 7),
        torch.tensor([1.0, math.nan])[:1],
    ],
)
def test_numbers_are_finite(tensor: torch.Tensor) -> None:
    assert is_finite(tensor)
