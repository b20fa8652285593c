import pytest
import torch
from torch import Tensor

from tests.methods.clients import merge_changes

START = {"linear": torch.full((6, 9), 0.5), "conv": torch.full((4, 2, 2, 2), 0.1), "bias": torch.zeros(6)}


def changes(clients: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {name: torch.randn(tensor.shape, generator=generator) for name, tensor in START.items()} for _ in range(clients)
    ]


def interference(merged: Tensor, clients: list[Tensor]) -> Tensor:
    """The objective, as the paper writes it."""
    return sum(
        (((merged - one) @ one.T).square().sum() / one.square().sum() for one in clients), start=torch.tensor(0.0)
    )


@pytest.mark.parametrize("name", ["linear", "conv"])
def test_the_steps_are_adams_on_the_objective(name: str) -> None:
    clients = changes(3)
    matrices = [one[name].flatten(1).double() for one in clients]
    expected = sum(matrices, start=torch.zeros(())).requires_grad_()
    optimiser = torch.optim.Adam([expected], lr=0.02)
    for _ in range(20):
        optimiser.zero_grad()
        interference(expected, matrices).backward()
        optimiser.step()
    merged = merge_changes("wudi", START, clients, steps=20, learning_rate=0.02)[name].flatten(1)
    assert torch.allclose(merged.double(), expected.detach(), atol=1e-5)


def test_many_steps_end_where_the_objective_is_least() -> None:
    clients = [one["linear"].double() for one in changes(2)]
    merged = merge_changes("wudi", START, changes(2), steps=4000, learning_rate=0.01)["linear"].double()
    # With R_i = tau_i^T tau_i / |tau_i|^2: tau sum_i R_i = sum_i tau_i R_i.
    moments = [one.T @ one / one.square().sum() for one in clients]
    residual = merged @ sum(moments) - sum(one @ moment for one, moment in zip(clients, moments, strict=True))
    assert residual.abs().max() < 1e-4
    total = clients[0] + clients[1]
    assert interference(merged, clients) < min(interference(total, clients), interference(total / 2, clients))


def test_one_client_alone_keeps_its_model() -> None:
    (change,) = changes(1)
    merged = merge_changes("wudi", START, [change])
    assert all(torch.allclose(merged[name], tensor, atol=1e-6) for name, tensor in change.items())


def test_changes_that_read_other_inputs_are_added() -> None:
    one, two = torch.zeros(2, 4, 4)
    one[:, :2], two[:, 2:] = 1, 2
    merged = merge_changes("wudi", {"x": torch.zeros(4, 4)}, [{"x": one}, {"x": two}], steps=50, learning_rate=0.1)
    assert torch.allclose(merged["x"], one + two, atol=1e-6)


def test_a_client_that_changed_nothing_has_no_say() -> None:
    nothing = {name: torch.zeros_like(tensor) for name, tensor in START.items()}
    settings = {"steps": 30, "learning_rate": 0.01}
    with_it, without = (merge_changes("wudi", START, one, **settings) for one in ([*changes(2), nothing], changes(2)))
    assert torch.allclose(with_it["linear"], without["linear"], atol=1e-6)
    alone = merge_changes("wudi", START, [nothing])
    assert all(tensor.abs().max() == 0 for tensor in alone.values())


def test_vectors_move_by_their_mean() -> None:
    clients = changes(3)
    mean = torch.stack([one["bias"] for one in clients]).mean(0)
    assert torch.allclose(merge_changes("wudi", START, clients)["bias"], mean, atol=1e-6)
