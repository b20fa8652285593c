"""Objectives with a memory: MOON's contrast and FedProx's adaptive pull against their papers."""

import math

import pytest
import torch
from torch.nn import functional

from fedfisher_core.client.objectives.objective import ConfiguredObjective, configure_objective
from fedfisher_core.client.round_state import LocalTraining, Past, Report, ServerMemory
from fedfisher_core.settings import Choice
from tests import tiny
from tests.client.test_features import hidden


def configured(name: str, **settings: float) -> ConfiguredObjective:
    return configure_objective(name, {name: Choice(**settings)})


def test_moon_contrasts_features_with_the_start_and_the_earlier_model() -> None:
    start, before, now = (tiny.initial(seed=seed) for seed in range(3))
    data = tiny.examples(6)
    network = tiny.TINY.load(start)
    losses = configured("moon", mu=2.0, temperature=0.4).losses(network, data.labels, 3, Past(trained=before))
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(now[name])
    found = losses(network(data.inputs), data.labels)
    for index in range(6):
        image, label = data.inputs[index : index + 1], data.labels[index : index + 1]
        z, z_start, z_before = (hidden(weights, image)[0] for weights in (now, start, before))
        cosines = [functional.cosine_similarity(z, other, dim=0) for other in (z_start, z_before)]
        near, far = (math.exp(float(cosine.detach()) / 0.4) for cosine in cosines)
        logits = tiny.TINY.load(now)(image)
        expected = functional.cross_entropy(logits, label).item() - 2.0 * math.log(near / (near + far))
        assert found[index].item() == pytest.approx(expected, rel=1e-4)


def test_moon_without_an_earlier_model_has_the_gradient_of_cross_entropy() -> None:
    data = tiny.examples(6)
    gradients = []
    for name in ("moon", "plain"):
        network = tiny.TINY.load(tiny.initial())
        losses = configured(name).losses(network, data.labels, 3)
        losses(network(data.inputs), data.labels).mean().backward()
        gradients.append([weight.grad for weight in network.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def after(memory: ServerMemory, chosen: ConfiguredObjective, *losses: float) -> ServerMemory:
    """Tell the server of clients with two examples and one."""
    exchange = chosen.objective.exchange
    assert exchange is not None
    reports = [Report(2 - index, {"loss": torch.tensor(loss)}) for index, loss in enumerate(losses)]
    return exchange.update(memory, reports, 5, chosen.settings)


def test_the_pull_rises_where_the_loss_does_not_fall_and_falls_after_falls_in_a_row() -> None:
    chosen = configured("fedprox_adaptive", first=0.15, step=0.1, patience=2)
    exchange = chosen.objective.exchange
    assert exchange is not None
    memory = exchange.begin(tiny.initial(), chosen.settings)
    path = []
    # Means over examples: 2, 1.8, then 3, then falls until mu reaches 0, where it stays.
    falling = [(loss, loss) for loss in (3.0, 2.5, 2.0, 1.5, 1.0, 0.9, 0.8)]
    for losses in ((2.0, 2.0), (2.1, 1.2), *falling):
        memory = after(memory, chosen, *losses)
        path.append(round(float(memory.sent["mu"]), 3))
    assert path == [0.15, 0.15, 0.25, 0.25, 0.15, 0.15, 0.05, 0.05, 0.0]


def test_a_loss_that_stays_is_no_fall() -> None:
    chosen = configured("fedprox_adaptive", first=0.5, step=0.1, patience=2)
    exchange = chosen.objective.exchange
    assert exchange is not None
    memory = exchange.begin(tiny.initial(), chosen.settings)
    path = []
    # The first loss has nothing to fall from, and one that stays ends a row of falls.
    for loss in (2.0, 2.0, 1.9, 1.9, 1.8, 1.7):
        memory = after(memory, chosen, loss, loss)
        path.append(round(float(memory.sent["mu"]), 3))
    assert path == [0.5, 0.6, 0.6, 0.7, 0.7, 0.6]


def test_clients_report_the_loss_that_training_ended_with() -> None:
    chosen = configured("fedprox_adaptive")
    exchange = chosen.objective.exchange
    assert exchange is not None
    start, trained = tiny.initial(seed=0), tiny.initial(seed=1)
    training = LocalTraining(start, trained, 1, 0.1, loss_of=lambda weights: 4.0 if weights is trained else 7.0)
    kept, report = exchange.close(training, Past(), chosen.settings)
    assert kept == {}
    assert float(report["loss"]) == 4.0
