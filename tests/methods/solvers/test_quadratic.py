import math

import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.solvers.blocks import DiagonalBlock
from fedfisher_core.methods.solvers.exact import conjugate_gradients
from fedfisher_core.methods.solvers.quadratic import (
    Quadratic,
    dense_quadratic,
    diagonal_quadratic,
    diagonal_quadratic_of_sums,
    kronecker_quadratic,
    with_penalty,
)


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in parameters.values()])


def point(problem) -> tuple[tuple[Tensor, ...], Tensor]:
    generator = torch.Generator().manual_seed(3)
    parameters = {
        name: torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        for name, tensor in problem.clients[0].items()
    }
    return problem.quadratic.vectors(parameters), flat(parameters)


def test_every_quantity_agrees_with_the_dense_matrices(problem):
    quadratic = problem.quadratic
    vectors, vector = point(problem)
    torch.testing.assert_close(flat(quadratic.parameters(quadratic.start)), problem.mean)
    slope = problem.side - problem.matrix @ problem.mean
    torch.testing.assert_close(flat(quadratic.parameters(quadratic.slope)), slope)
    assert quadratic.floor == pytest.approx(problem.value(problem.mean), rel=1e-12)
    torch.testing.assert_close(flat(quadratic.parameters(quadratic.product(vectors))), problem.matrix @ vector)
    residual = problem.side - problem.matrix @ vector
    torch.testing.assert_close(flat(quadratic.parameters(quadratic.residual(vectors))), residual)
    assert quadratic.value(vectors) == pytest.approx(problem.value(vector), rel=1e-12)
    trace = sum(
        (block.mean_eigenvalue() * torch.ones_like(start)).sum()
        for block, start in zip(quadratic.blocks, quadratic.start, strict=True)
    )
    assert trace.item() == pytest.approx(problem.matrix.trace().item())


def test_a_penalty_and_another_start_agree_with_the_dense_matrices(problem):
    start, centre = problem.clients[1], {name: 2 * tensor for name, tensor in problem.clients[0].items()}
    penalised = with_penalty(problem.quadratic, factor=3.0, penalty=0.5, centre=centre, start=start)
    vectors, vector = point(problem)
    assert penalised.value(vectors) == pytest.approx(
        3 * problem.value(vector) + 0.5 * (vector - flat(centre)).square().sum().item(), rel=1e-10
    )
    residual = 3 * (problem.side - problem.matrix @ vector) + 0.5 * (flat(centre) - vector)
    torch.testing.assert_close(flat(penalised.parameters(penalised.residual(vectors))), residual)
    torch.testing.assert_close(flat(penalised.parameters(penalised.start)), flat(start))
    trace = sum(
        (block.mean_eigenvalue() * torch.ones_like(start)).sum()
        for block, start in zip(penalised.blocks, penalised.start, strict=True)
    )
    assert trace.item() == pytest.approx(3 * problem.matrix.trace().item() + 0.5 * len(vector))


def test_parameters_undo_vectors_in_the_order_of_the_clients(problem):
    client = problem.clients[1]
    back = problem.quadratic.parameters(problem.quadratic.vectors(client))
    assert list(back) == list(client)
    for name, tensor in client.items():
        assert torch.equal(back[name], tensor)


def test_the_mean_of_identical_clients_is_exact_and_costs_nothing(agreed):
    start = agreed.quadratic.parameters(agreed.quadratic.start)
    for name, tensor in agreed.clients[0].items():
        assert torch.equal(start[name], tensor)
    assert agreed.quadratic.value(agreed.quadratic.start) == 0


def test_the_value_is_accurate_near_zero():
    far = {"layer.weight": torch.full((1, 2), 1000.0)}
    near = {"layer.weight": torch.full((1, 2), 1000.001)}
    step = (near["layer.weight"] - far["layer.weight"]).double()
    quadratic = diagonal_quadratic([far, near], [{"layer.weight": torch.ones(1, 2)}] * 2, [0.5, 0.5])
    assert quadratic.value(quadratic.vectors(far)) == pytest.approx(0.5 * step.square().sum().item(), rel=1e-5)


CLIENT = {"layer.weight": torch.zeros(2, 3), "layer.bias": torch.zeros(2)}
FACTORS = {"layer": Kronecker(torch.eye(4), torch.eye(2))}
DIAGONAL = {name: torch.ones_like(tensor) for name, tensor in CLIENT.items()}


@pytest.mark.parametrize("weights", [[0.5, 0.6], [1.5, -0.5], [1.0, 0.0], [float("nan"), 1.0]])
def test_weights_must_be_positive_with_sum_one(weights):
    with pytest.raises(InputError, match="weights are"):
        diagonal_quadratic([CLIENT] * 2, [DIAGONAL] * 2, weights)


def test_numbers_of_clients_must_agree():
    with pytest.raises(InputError, match="lengths 2, 1 and 2"):
        diagonal_quadratic([CLIENT] * 2, [DIAGONAL], [0.5, 0.5])
    with pytest.raises(InputError, match="lengths 0, 0 and 0"):
        kronecker_quadratic([], [], [])


def test_names_and_shapes_of_clients_must_agree():
    with pytest.raises(InputError, match=r"clients\[1\] has parameters"):
        diagonal_quadratic([CLIENT, {"layer.weight": CLIENT["layer.weight"]}], [DIAGONAL] * 2, [0.5, 0.5])
    other = CLIENT | {"layer.bias": torch.zeros(3)}
    with pytest.raises(InputError, match=r"clients\[1\]\['layer.bias'\] has shape \(3,\); allowed: \(2,\)"):
        diagonal_quadratic([CLIENT, other], [DIAGONAL] * 2, [0.5, 0.5])


def test_fishers_must_fit_the_parameters():
    with pytest.raises(InputError, match=r"fishers\[0\] has names \['layer.bias'\]"):
        diagonal_quadratic([CLIENT], [{"layer.bias": torch.ones(2)}], [1.0])
    with pytest.raises(InputError, match=r"fishers\[0\]\['layer'\].inputs has shape \(3, 3\); allowed: \(4, 4\)"):
        kronecker_quadratic([CLIENT], [{"layer": Kronecker(torch.eye(3), torch.eye(2))}], [1.0])
    with pytest.raises(InputError, match=r"don't match the parameters \['other.weight'\]"):
        kronecker_quadratic([CLIENT | {"other.weight": torch.zeros(1, 1)}], [FACTORS], [1.0])
    with pytest.raises(InputError, match=r"don't match the parameters \['other.weight'\]"):
        kronecker_quadratic([CLIENT], [FACTORS | {"other": FACTORS["layer"]}], [1.0])
    half = {"layer[1 of 2]": Kronecker(torch.eye(4), torch.eye(1))}
    with pytest.raises(InputError, match=r"don't match the parameters \['layer\[2 of 2\]'\]"):
        kronecker_quadratic([CLIENT], [half], [1.0])
    with pytest.raises(InputError, match=r"don't match the parameters \['layer\[1 of 2\]', 'layer\[2 of 2\]'\]"):
        kronecker_quadratic([CLIENT], [{"layer[2 of 2]": half["layer[1 of 2]"]} | half], [1.0])
    with pytest.raises(InputError, match=r"fishers\[1\] has layers \[\]"):
        kronecker_quadratic([CLIENT] * 2, [FACTORS, {}], [0.5, 0.5])
    with pytest.raises(InputError, match=r"fishers\[0\] has shape \(7, 7\); allowed: \(8, 8\)"):
        dense_quadratic([CLIENT], [torch.eye(7)], [1.0])


def test_what_is_not_finite_names_its_client():
    broken = {"layer": Kronecker(torch.eye(4), torch.full((2, 2), torch.inf))}
    with pytest.raises(DivergedClientError, match="client 1"):
        kronecker_quadratic([CLIENT] * 2, [FACTORS, broken], [0.5, 0.5])
    with pytest.raises(DivergedClientError, match="client 0"):
        dense_quadratic([CLIENT | {"layer.bias": torch.full((2,), torch.nan)}], [torch.eye(8)], [1.0])


def test_sums_make_the_diagonal_objective_of_the_clients():
    generator = torch.Generator().manual_seed(0)
    clients = [{"x": torch.randn(3, 4, generator=generator), "y": torch.randn(5, generator=generator)} for _ in "abc"]
    fishers = [
        {name: torch.rand(tensor.shape, generator=generator) for name, tensor in clients[0].items()} for _ in "abc"
    ]
    for fisher in fishers:
        fisher["y"][2] = 0
    weights = [0.5, 0.3, 0.2]
    expected = diagonal_quadratic(clients, fishers, weights)

    def mean(each):
        return {name: sum(p * one[name].double() for p, one in zip(weights, each, strict=True)) for name in clients[0]}

    products = [{name: fisher[name] * one[name] for name in one} for one, fisher in zip(clients, fishers, strict=True)]
    energies = [{name: products[i][name] * clients[i][name] for name in clients[i]} for i in range(3)]
    found = diagonal_quadratic_of_sums(
        mean=mean(clients),
        fisher=mean(fishers),
        product=mean(products),
        energy=sum(tensor.sum().item() for tensor in mean(energies).values()),
    )
    vectors = tuple(start + 1 for start in expected.start)
    assert found.floor == pytest.approx(expected.floor, rel=1e-5)
    assert found.value(vectors) == pytest.approx(expected.value(vectors), rel=1e-5)
    for one, other in zip(found.residual(vectors), expected.residual(vectors), strict=True):
        torch.testing.assert_close(one, other)
    assert found.slope[1][2] == 0


@pytest.mark.parametrize("scale", [1e-10, 1e-13])
def test_conjugate_gradients_do_not_depend_on_the_size_of_fishers(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    clients = [{"l.weight": torch.randn(3, 4, generator=generator)} for _ in range(2)]
    drawn = [(torch.randn(9, 4, generator=generator), torch.randn(9, 3, generator=generator)) for _ in clients]
    found = []
    for factor in (1.0, scale):
        fishers = [{"l": Kronecker(x.T @ x / 9, factor * (y.T @ y) / 9)} for x, y in drawn]
        solution = conjugate_gradients(kronecker_quadratic(clients, fishers, [0.5, 0.5]), damping=0.1)
        found.append(solution.parameters["l.weight"])
    assert torch.allclose(found[0], found[1], atol=1e-4)


def test_what_is_no_number_has_no_objective() -> None:
    quadratic = diagonal_quadratic([{"w": torch.ones(2)}], [{"w": torch.ones(2)}], [1.0])
    assert math.isnan(quadratic.value((torch.full((2,), torch.nan),)))


def test_rounding_brings_no_objective_below_0() -> None:
    one = torch.ones(1)
    # f(m) is a little too small, as rounding may have it.
    quadratic = Quadratic((DiagonalBlock("w", one),), (0 * one,), (one,), 1 - 1e-9, {"w": one})
    assert quadratic.value([one]) == 0
