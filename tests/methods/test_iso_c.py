import pytest
import torch
from torch import Tensor

from tests.methods.clients import merge_changes

SHAPES = {"linear": (6, 9), "conv": (4, 2, 3, 3), "bias": (6,)}
START = {name: torch.full(shape, 0.5) for name, shape in SHAPES.items()}


def changes(clients: int = 3) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()} for client in range(clients)
    ]


def total(name: str) -> Tensor:
    return torch.stack([one[name] for one in changes()]).sum(0)


@pytest.mark.parametrize("name", ["linear", "conv"])
def test_singular_values_are_all_their_mean(name: str) -> None:
    merged = merge_changes("iso_c", START, changes())[name].flatten(1)
    before, after = (torch.linalg.svdvals(one) for one in (total(name).flatten(1), merged))
    assert torch.allclose(after, before.mean().expand_as(after), rtol=1e-4)
    assert before[0] > 1.5 * before[-1]


@pytest.mark.parametrize("name", ["linear", "conv"])
def test_singular_vectors_are_those_of_the_sum(name: str) -> None:
    merged = merge_changes("iso_c", START, changes())[name].flatten(1)
    summed = total(name).flatten(1)
    # S = U^T A V in the basis of the sum: a multiple of the identity.
    left, values, right = torch.linalg.svd(summed, full_matrices=False)
    assert torch.allclose(left.T @ merged @ right.T, values.mean() * torch.eye(len(values)), atol=1e-4)


def test_vectors_move_by_their_mean() -> None:
    merged = merge_changes("iso_c", START, changes())
    assert torch.allclose(merged["bias"], total("bias") / 3, atol=1e-6)


def test_a_sum_with_equal_singular_values_stays() -> None:
    generator = torch.Generator().manual_seed(1)
    rotation = torch.linalg.qr(torch.randn(5, 5, generator=generator)).Q
    halves = [{"x": 0.25 * rotation}, {"x": 0.75 * rotation}]
    merged = merge_changes("iso_c", {"x": torch.zeros(5, 5)}, halves)["x"]
    assert torch.allclose(merged, rotation, atol=1e-5)


def test_directions_in_which_nothing_changed_stay() -> None:
    changed = torch.zeros(4, 4)
    changed[0, 0], changed[1, 1] = 3, 1
    start = {"x": torch.full((4, 4), 0.1)}
    merged = merge_changes("iso_c", start, [{"x": changed}])["x"]
    # The mean of 3, 1, 0 and 0 in the two directions that changed.
    assert torch.allclose(merged, torch.diag(torch.tensor([1.0, 1, 0, 0])), atol=1e-5)


def test_the_scale_lengthens_the_way() -> None:
    once, twice = (merge_changes("iso_c", START, changes(), scale=[factor]) for factor in (1.0, 2.0))
    assert all(torch.allclose(2 * once[name], twice[name], atol=1e-5) for name in SHAPES)
