"""Checks for finite numbers, and sums on a GPU that give the same bits each time."""

import math
from contextlib import ExitStack

import pytest
import torch

from fedfisher_core.engine.arithmetic import is_finite, reproducible_gpu


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


def chosen() -> tuple[bool, str, str]:
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    products = torch.backends.cuda.matmul
    return torch.are_deterministic_algorithms_enabled(), convolutions.fp32_precision, products.fp32_precision


def test_it_holds_until_the_last_of_those_who_asked_has_left() -> None:
    before, first, second = chosen(), ExitStack(), ExitStack()
    first.enter_context(reproducible_gpu())
    second.enter_context(reproducible_gpu())
    first.close()
    assert chosen() == (True, "ieee", "ieee")
    second.close()
    assert chosen() == before != (True, "ieee", "ieee")


def test_it_ends_with_a_failure() -> None:
    before = chosen()
    with pytest.raises(ArithmeticError), reproducible_gpu():
        raise ArithmeticError
    assert chosen() == before
