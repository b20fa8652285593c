import numpy as np
import pytest
import torch

from fedfisher_core.experiments.two_layer.plan import (
    active_units,
    combine_gradients,
    local_models,
    predict,
    synthetic_clients,
    training_error,
)

CLIENTS, WIDTH, SAMPLES, DIMENSIONS = 3, 6, 4, 5


@pytest.fixture
def federation():
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(WIDTH, DIMENSIONS, generator=generator, dtype=torch.float64)
    signs = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    inputs, targets = synthetic_clients(
        np.random.default_rng(2),
        clients=CLIENTS,
        samples=SAMPLES,
        dimensions=DIMENSIONS,
        model_heterogeneity=1.0,
        data_heterogeneity=1.0,
        noise=0.1,
    )
    return start, signs, inputs, targets


def test_the_network_is_the_sum_over_units(federation):
    weights, signs, inputs, _ = federation
    x = inputs[1, 2].tolist()
    total = sum(
        a * max(sum(p * q for p, q in zip(w, x, strict=True)), 0.0)
        for a, w in zip(signs.tolist(), weights.tolist(), strict=True)
    )
    assert predict(weights, signs, inputs)[1, 2].item() == pytest.approx(total / WIDTH**0.5)


def test_combined_gradients_are_those_of_autograd(federation):
    weights, signs, inputs, targets = federation
    leaf = weights.clone().requires_grad_()
    (expected,) = torch.autograd.grad((predict(leaf, signs, inputs[0]) * targets[0]).sum(), leaf)
    actual = combine_gradients(targets[0], active_units(weights, inputs[0]), signs, inputs[0])
    torch.testing.assert_close(actual, expected)


def test_local_training_is_gradient_descent_on_each_clients_mean_loss(federation):
    start, signs, inputs, targets = federation
    trained = list(local_models(start, signs, inputs, targets, learning_rate=0.3, steps=[2, 5]))
    for client in range(CLIENTS):
        weights = start.clone()
        for step in range(1, 6):
            leaf = weights.requires_grad_()
            loss = 0.5 * (predict(leaf, signs, inputs[client]) - targets[client]).square().mean()
            (gradient,) = torch.autograd.grad(loss, leaf)
            weights = (weights - 0.3 * gradient).detach()
            if step == 2:
                torch.testing.assert_close(trained[0][client], weights)
        torch.testing.assert_close(trained[1][client], weights)


def test_the_training_error_averages_over_clients_and_samples(federation):
    start, signs, inputs, targets = federation
    losses = 0.5 * (predict(start, signs, inputs) - targets) ** 2
    assert training_error(start, signs, inputs, targets) == pytest.approx(losses.sum().item() / (CLIENTS * SAMPLES))
    own = torch.stack([start, start + 1, start - 1])
    each = [training_error(own[i], signs, inputs[i], targets[i]) for i in range(CLIENTS)]
    assert training_error(own, signs, inputs, targets) == pytest.approx(sum(each) / CLIENTS)


def test_synthetic_inputs_have_norm_one_and_targets_are_linear_without_noise():
    inputs, targets = synthetic_clients(
        np.random.default_rng(4),
        clients=3,
        samples=30,
        dimensions=4,
        model_heterogeneity=2.0,
        data_heterogeneity=0.5,
        noise=0.0,
    )
    assert inputs.shape == (3, 30, 4)
    torch.testing.assert_close(inputs.norm(dim=2), torch.ones(3, 30, dtype=torch.float64))
    models = [torch.linalg.lstsq(x, y[:, None]).solution for x, y in zip(inputs, targets, strict=True)]
    for x, y, model in zip(inputs, targets, models, strict=True):
        torch.testing.assert_close((x @ model)[:, 0], y)
    assert (models[0] - models[1]).norm() > 0.1
