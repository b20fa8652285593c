"""What holds in a process while its tasks compute on a GPU; the machine needs none."""

from contextlib import ExitStack

import pytest
import torch

from fedfisher_core.engine.arithmetic import reproducible_gpu


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
