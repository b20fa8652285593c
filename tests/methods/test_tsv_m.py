import pytest
import torch
from torch import Tensor

from fedfisher_core.methods.tsv_m import nearest_orthonormal
from tests.methods.clients import merge_changes

START = {"linear": torch.full((6, 9), 0.5), "conv": torch.full((6, 2, 2, 2), 0.1), "bias": torch.zeros(6)}


def changes(clients: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {name: torch.randn(tensor.shape, generator=generator) for name, tensor in START.items()} for _ in range(clients)
    ]


def test_one_client_alone_keeps_its_model() -> None:
    (change,) = changes(1)
    merged = merge_changes("tsv_m", START, [change])
    assert all(torch.allclose(merged[name], tensor, atol=1e-5) for name, tensor in change.items())


@pytest.mark.parametrize("name", ["linear", "conv"])
def test_singular_values_are_those_that_clients_keep(name: str) -> None:
    clients = changes(3)
    merged = merge_changes("tsv_m", START, clients)[name].flatten(1)
    # Two of six each: as many as there are rows, so that all can be made orthogonal to each other.
    kept = torch.cat([torch.linalg.svdvals(one[name].flatten(1))[:2] for one in clients])
    assert torch.allclose(torch.linalg.svdvals(merged), kept.sort(descending=True).values, atol=1e-4)


def test_vectors_move_by_their_mean() -> None:
    clients = changes(3)
    mean = torch.stack([one["bias"] for one in clients]).mean(0)
    assert torch.allclose(merge_changes("tsv_m", START, clients)["bias"], mean, atol=1e-6)


def test_changes_that_do_not_meet_are_added() -> None:
    one, two = torch.zeros(2, 4, 4)
    one[0, 0], two[2, 1] = 3, 5
    merged = merge_changes("tsv_m", {"x": torch.zeros(4, 4)}, [{"x": one}, {"x": two}])["x"]
    assert torch.allclose(merged, one + two, atol=1e-5)


def test_clients_of_one_mind_keep_their_leading_directions() -> None:
    change = torch.diag(torch.tensor([4.0, 3, 2, 1]))
    merged = merge_changes("tsv_m", {"x": torch.zeros(4, 4)}, [{"x": change}] * 2)["x"]
    assert torch.allclose(merged, torch.diag(torch.tensor([4.0, 3, 0, 0])), atol=1e-5)


def test_each_of_more_clients_than_rows_keeps_a_direction() -> None:
    generator = torch.Generator().manual_seed(2)
    clients = [{"x": torch.randn(2, 7, generator=generator)} for _ in range(5)]
    merged = merge_changes("tsv_m", {"x": torch.zeros(2, 7)}, clients)["x"]
    assert torch.linalg.matrix_rank(merged) == 2


def test_the_nearest_orthonormal_columns() -> None:
    generator = torch.Generator().manual_seed(3)
    columns = torch.randn(8, 5, generator=generator).double()
    nearest = nearest_orthonormal(columns)
    assert torch.allclose(nearest.T @ nearest, torch.eye(5).double(), atol=1e-10)
    # Of the nearest one, X^T Q is symmetric and positive.
    product = columns.T @ nearest
    assert torch.allclose(product, product.T, atol=1e-10)
    assert torch.linalg.eigvalsh(product).min() > 0


def test_columns_that_depend_on_each_other_share_a_direction() -> None:
    column = torch.tensor([[0.6], [0.8], [0.0]]).double()
    nearest = nearest_orthonormal(column.expand(3, 4))
    assert torch.allclose(nearest, column.expand(3, 4) / 2)
