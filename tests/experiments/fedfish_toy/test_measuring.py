"""The errors of the toy regression against slow references, and the exact properties of both methods."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.squared_gradients import SquaredGradients
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.experiments.fedfish_toy.plan import (
    GlobalModel,
    fedavg_of,
    measure_overlap,
    samples_of,
    upload_of,
)
from fedfisher_core.experiments.fedfish_toy.settings import RegressionGrid
from fedfisher_core.methods.fedfish import step_from
from fedfisher_core.models.spec import ModelSpec, Parameters

SMALL = RegressionGrid(samples=11, widths=(6, 5, 4), epochs=(1, 4), batch_size=4, points=21, seeds=(0, 1))
SPEC = ModelSpec("mlp", Vectors(1), classes=1, bias=True, widths=SMALL.widths)


def drawn(seed: int) -> Parameters:
    return SPEC.initialise(torch.Generator().manual_seed(seed))


def upload(weights: Parameters, squares: Parameters, size: int = 11) -> Upload:
    return Upload(
        num_examples=size, statistics={Weights: Weights(weights), SquaredGradients: SquaredGradients(squares)}
    )


def squares_of(seed: int) -> Parameters:
    return {name: tensor.square() for name, tensor in drawn(seed).items()}


def equal(one: Parameters, other: Parameters) -> bool:
    return all(torch.allclose(one[name], other[name], atol=1e-6) for name in other)


@pytest.mark.parametrize("global_step", [1.0, 0.3])
def test_equal_squared_gradients_make_fedfish_fedavg(global_step: float) -> None:
    clients = [upload(drawn(seed), squares_of(9)) for seed in (1, 2, 3)]
    fedfish = step_from(drawn(0), clients, global_step=global_step)
    assert equal(fedfish, fedavg_of(drawn(0), clients, global_step=global_step))
    others = [upload(drawn(seed), squares_of(seed)) for seed in (1, 2, 3)]
    assert not equal(step_from(drawn(0), others, global_step=global_step), fedfish)


@pytest.mark.parametrize("method", [fedavg_of, step_from])
def test_identical_clients_keep_their_model(method) -> None:
    clients = [upload(drawn(4), squares_of(seed)) for seed in (1, 2)]
    assert equal(method(drawn(0), clients, global_step=1.0), drawn(4))


def test_fedavg_is_the_mean_and_a_smaller_step_stays_on_the_way_to_it() -> None:
    clients = [upload(drawn(seed), squares_of(seed)) for seed in (1, 2)]
    mean = {name: (drawn(1)[name] + drawn(2)[name]) / 2 for name in drawn(1)}
    whole = fedavg_of(drawn(0), clients, global_step=1.0)
    assert all(torch.equal(whole[name], mean[name]) for name in mean)
    part = fedavg_of(drawn(0), clients, global_step=0.25)
    assert equal(part, {name: 0.75 * start + 0.25 * mean[name] for name, start in drawn(0).items()})


def forward(weights: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """The network in double precision, layer by layer."""
    hidden = inputs
    for layer in ("fc1", "fc2", "fc3"):
        hidden = np.maximum(hidden @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"], 0)
    return (hidden @ weights["fc4.weight"].T + weights["fc4.bias"])[:, 0]


def doubles(parameters: Parameters) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy().copy() for name, tensor in parameters.items()}


def test_squared_gradients_of_batches_are_those_of_differences_of_the_loss() -> None:
    own = samples_of(0, SMALL, 0.5, seed=1)
    network = SPEC.load(drawn(3))
    found = upload_of(network, own, 4, torch.Generator().manual_seed(5))[SquaredGradients].tensors
    order = torch.randperm(11, generator=torch.Generator().manual_seed(5))
    batches = [order[:4], order[4:8], order[8:]]
    inputs, targets = own.inputs.double().numpy(), own.labels.double().numpy()
    weights = doubles(drawn(3))

    def loss(batch: Tensor) -> float:
        return float(np.mean((forward(weights, inputs[batch]) - targets[batch]) ** 2) / 2)

    assert set(found) == set(weights)
    for name, tensor in weights.items():
        for place in np.ndindex(tensor.shape):
            here, total = tensor[place], 0.0
            for batch in batches:
                tensor[place] = here + 1e-6
                above = loss(batch)
                tensor[place] = here - 1e-6
                total += ((above - loss(batch)) / 2e-6) ** 2
                tensor[place] = here
            assert float(found[name][place]) == pytest.approx(total, rel=1e-3, abs=1e-9), (name, place)


def trained(client: int, epochs: int, overlap: float, seed: int) -> tuple[dict[str, np.ndarray], Examples]:
    """Plain SGD by a loop of its own."""
    own = samples_of(client, SMALL, overlap, seed)
    network = SPEC.load(SPEC.initialise(torch_generator(seed, Stream.INITIALISATION)))
    generator = torch_generator(seed, Stream.CLIENT, client)
    for _ in range(epochs):
        for batch in torch.randperm(11, generator=generator).split(4):
            network.zero_grad()
            (((network(own.inputs[batch])[:, 0] - own.labels[batch]) ** 2).mean() / 2).backward()
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter -= 0.1 * parameter.grad
    return doubles({name: parameter.detach() for name, parameter in network.named_parameters()}), own


@pytest.mark.parametrize("overlap", [1.0, 0.5, 0.0])
def test_errors_are_those_of_plain_sgd_and_plain_means(overlap: float) -> None:
    measured = measure_overlap(SMALL, overlap, 1)
    points = np.linspace(-1, 1, 21)[:, None]
    truth = np.sin(np.pi * (points[:, 0] + 1))
    for epochs, stage in zip(SMALL.epochs, measured.stages, strict=True):
        clients = [trained(client, epochs, overlap, 1) for client in range(2)]
        mean = {name: (clients[0][0][name] + clients[1][0][name]) / 2 for name in clients[0][0]}
        curve = forward(mean, points)
        assert stage.fedavg.curve == pytest.approx(curve, abs=1e-5)
        assert stage.fedavg.global_error == pytest.approx(np.mean((curve - truth) ** 2), abs=1e-5)
        for client, (weights, own) in enumerate(clients):
            inputs, targets = own.inputs.double().numpy(), own.labels.double().numpy()
            local = np.mean((forward(weights, inputs) - targets) ** 2)
            after = np.mean((forward(mean, inputs) - targets) ** 2)
            assert stage.local_errors[client] == pytest.approx(local, abs=1e-5)
            assert stage.fedavg.client_errors[client] == pytest.approx(after, abs=1e-5)
            assert stage.local_curves[client] == pytest.approx(forward(weights, points), abs=1e-5)
            assert measured.inputs[client] == pytest.approx(inputs[:, 0])
            assert measured.targets[client] == pytest.approx(targets)


def test_fedfish_is_the_mean_weighted_by_squared_gradients() -> None:
    stage = measure_overlap(SMALL, 0.5, 1).stages[-1]
    weighted: dict[str, np.ndarray] = {}
    total: dict[str, np.ndarray] = {}
    plain: dict[str, list[np.ndarray]] = {}
    for client in range(2):
        weights, own = trained(client, 4, 0.5, 1)
        network = SPEC.load({name: torch.from_numpy(tensor).float() for name, tensor in weights.items()})
        order = torch.randperm(11, generator=torch_generator(1, Stream.FISHER, client))
        for batch in order.split(4):
            network.zero_grad()
            (((network(own.inputs[batch])[:, 0] - own.labels[batch]) ** 2).mean() / 2).backward()
            for name, parameter in network.named_parameters():
                square = parameter.grad.double().numpy() ** 2
                weighted[name] = weighted.get(name, 0) + square * weights[name]
                total[name] = total.get(name, 0) + square
        for name, tensor in weights.items():
            plain.setdefault(name, []).append(tensor)
    means = {
        name: np.where(total[name] > 0, weighted[name] / np.where(total[name] > 0, total[name], 1), np.mean(both, 0))
        for name, both in plain.items()
    }
    points = np.linspace(-1, 1, 21)[:, None]
    assert stage.fedfish.curve == pytest.approx(forward(means, points), abs=1e-4)
    assert stage.fedfish.curve != pytest.approx(stage.fedavg.curve, abs=1e-3)


def test_a_seed_and_an_overlap_decide_their_results_alone() -> None:
    alone = measure_overlap(SMALL.model_copy(update={"overlaps": (0.5,), "seeds": (1,)}), 0.5, 1)
    assert alone == measure_overlap(SMALL, 0.5, 1)
    assert alone.stages != measure_overlap(SMALL, 0.5, 0).stages
    longer = measure_overlap(SMALL.model_copy(update={"epochs": (4,)}), 0.5, 1)
    assert longer.stages == alone.stages[1:]


def test_a_global_model_is_that_of_its_global_step() -> None:
    nearly = measure_overlap(SMALL.model_copy(update={"global_step": 1e-9}), 0.5, 1).stages[-1]
    assert isinstance(nearly.fedavg, GlobalModel)
    initial = doubles(SPEC.initialise(torch_generator(1, Stream.INITIALISATION)))
    expected = forward(initial, np.linspace(-1, 1, 21)[:, None])
    assert nearly.fedavg.curve == pytest.approx(expected, abs=1e-5)
    assert nearly.fedfish.curve == pytest.approx(expected, abs=1e-5)


def test_a_diverged_client_is_named() -> None:
    with pytest.raises(DivergedClientError, match=r"client 0 at overlap=0\.5 with seed=1: .*toy\.learning_rate=1e\+20"):
        measure_overlap(SMALL.model_copy(update={"learning_rate": 1e20}), 0.5, 1)
