import pytest
import torch

from fedfisher_core.experiments.two_layer.plan import active_units, gram_matrix, nearest_minimiser, predict
from fedfisher_core.methods.solvers.exact import closed_form
from fedfisher_core.methods.solvers.first_order import gradient_descent
from fedfisher_core.methods.solvers.quadratic import Quadratic, dense_quadratic

CLIENTS, DIMENSIONS = 3, 3


def federation(width: int, samples: int):
    generator = torch.Generator().manual_seed(width)
    signs = torch.where(torch.rand(width, generator=generator) < 0.5, -1.0, 1.0).double()
    start = torch.randn(width, DIMENSIONS, generator=generator, dtype=torch.float64)
    moves = torch.randn(CLIENTS, width, DIMENSIONS, generator=generator, dtype=torch.float64)
    inputs = torch.randn(CLIENTS, samples, DIMENSIONS, generator=generator, dtype=torch.float64)
    return start + 0.5 * moves, signs, inputs / inputs.norm(dim=2, keepdim=True)


def jacobian(weights, signs, inputs):
    full = torch.autograd.functional.jacobian(lambda leaf: predict(leaf, signs, inputs), weights)
    return full.flatten(1)


def dense(weights, signs, inputs) -> Quadratic:
    """The objective with each client's Fisher, the mean over samples of squared gradients of the output."""
    fishers = []
    for own, x in zip(weights, inputs, strict=True):
        rows = jacobian(own, signs, x)
        fishers.append(sum(torch.outer(row, row) for row in rows) / len(rows))
    return dense_quadratic([{"w": own} for own in weights], fishers, [1 / CLIENTS] * CLIENTS)


def test_the_gram_matrix_is_that_of_the_stacked_jacobians():
    weights, signs, inputs = federation(width=7, samples=4)
    stacked = torch.cat([jacobian(w, signs, x) for w, x in zip(weights, inputs, strict=True)])
    gram = gram_matrix(active_units(weights, inputs).flatten(0, 1), inputs.flatten(0, 1))
    torch.testing.assert_close(gram, stacked @ stacked.T)


@pytest.mark.parametrize(("width", "samples"), [(8, 3), (3, 6)], ids=["more parameters", "more samples"])
def test_the_global_model_is_the_dense_minimiser_nearest_to_the_mean(width, samples):
    weights, signs, inputs = federation(width, samples)
    quadratic = dense(weights, signs, inputs)
    solution = nearest_minimiser(weights, signs, inputs)
    torch.testing.assert_close(solution, closed_form(quadratic).parameters["w"])


def test_gradient_descent_of_lemma_1_converges_to_it():
    weights, signs, inputs = federation(width=10, samples=2)
    found = gradient_descent(dense(weights, signs, inputs), steps=50_000, tolerance=1e-9)
    torch.testing.assert_close(found.parameters["w"], nearest_minimiser(weights, signs, inputs), rtol=0, atol=1e-5)


def test_identical_clients_return_the_client():
    weights, signs, inputs = federation(width=8, samples=3)
    same = weights[:1].expand(CLIENTS, -1, -1)
    torch.testing.assert_close(nearest_minimiser(same, signs, inputs), weights[0])
