import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from fedfisher_core.models.layers import max_pool


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 2, 8, 6), (2, 1, 7, 9), (1, 4, 2, 2)])
@pytest.mark.parametrize("decimals", [0, 5], ids=["many equal pixels", "hardly any"])
def test_outputs_and_gradients_are_those_of_torch(shape: tuple[int, ...], decimals: int) -> None:
    maps = drawn(*shape).round(decimals=decimals).requires_grad_()
    pooled, expected = max_pool(maps), functional.max_pool2d(maps, 2)
    assert torch.equal(pooled, expected)
    slope = drawn(*expected.shape, seed=1)
    (found,), (wanted,) = (torch.autograd.grad(one, maps, slope) for one in (pooled, expected))
    assert torch.equal(found, wanted)


def test_each_of_four_equal_pixels_but_the_first_gets_nothing() -> None:
    maps = torch.ones(1, 1, 2, 2, requires_grad=True)
    (found,) = torch.autograd.grad(max_pool(maps).sum(), maps)
    assert found.tolist() == [[[[1, 0], [0, 0]]]]


def test_maps_in_another_memory_format_are_pooled_alike() -> None:
    maps = drawn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    assert torch.equal(max_pool(maps), functional.max_pool2d(maps, 2))


def test_gradients_have_gradients() -> None:
    maps = drawn(1, 2, 4, 4).double().requires_grad_()
    assert torch.autograd.gradcheck(max_pool, (maps,))
    assert torch.autograd.gradgradcheck(max_pool, (maps,))


def test_examples_can_be_taken_one_by_one() -> None:
    maps = drawn(5, 2, 4, 4)

    def loss(one: Tensor) -> Tensor:
        return max_pool(one[None]).square().sum()

    each = torch.stack([grad(loss)(one) for one in maps])
    assert torch.allclose(vmap(grad(loss))(maps), each)


def test_several_gradients_can_be_taken_at_once() -> None:
    maps = drawn(5, 2, 4, 4).requires_grad_()
    pooled, slopes = max_pool(maps), drawn(3, 5, 2, 2, 2, seed=2)
    (found,) = torch.autograd.grad(pooled, maps, slopes, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(pooled, maps, slope, retain_graph=True)[0] for slope in slopes]
    assert torch.equal(found, torch.stack(each))


def test_not_a_number_stays() -> None:
    maps = drawn(1, 1, 4, 4)
    maps[0, 0, 1, 2] = torch.nan
    assert torch.isnan(max_pool(maps)).flatten().tolist() == [False, True, False, False]
