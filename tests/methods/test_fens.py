from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.benchmark.rows import Role, role_of
from fedfisher_core.federation.data import load_data
from fedfisher_core.methods.fens import Participant
from fedfisher_core.models.combined import Combined, draw_combiner
from fedfisher_core.models.evaluation import accuracy, logits, mean_probability, measure
from fedfisher_core.models.spec import Parameters
from tests import tiny
from tests.methods.clients import SIZES, aggregate, asking
from tests.walked import walk_tiny

CLIENTS = 3
SIZE = sum(parameter.numel() for parameter in tiny.TINY.skeleton().parameters())


def clients() -> list[Upload]:
    """Untrained clients that are asked about known examples."""
    return [
        Upload(size, {Weights: Weights(tiny.initial(seed=index))}, asking(tiny.examples(size, seed=index)))
        for index, size in enumerate(SIZES)
    ]


def sequential(combiner: Parameters) -> nn.Sequential:
    """The combiner as the authors write it, in double precision."""
    rows, columns = combiner["hidden_weight"].shape
    network = nn.Sequential(nn.Linear(columns, rows), nn.ReLU(), nn.Linear(rows, len(combiner["head_bias"]))).double()
    for parameter, name in zip(network.parameters(), combiner, strict=True):
        parameter.data = combiner[name].double()
    return network


def by_the_authors(
    outputs: Sequence[Tensor], labels: Sequence[Tensor], combiner: Parameters, draws: torch.Generator, **chosen: Any
) -> list[Tensor]:
    """Train a combiner by the lines of the authors' `FedAdam.py` and `train_LocalSGD.py`, client by client."""
    batch, steps = chosen["batch_size"], chosen["local_steps"]
    network = sequential(combiner)
    # More batches than are taken: a client counts by those taken; otherwise by all that it holds.
    seen = [len(one) if -(-len(one) // batch) <= steps else batch * steps for one in labels]
    means: list[Tensor] = [torch.zeros(())] * 4
    squares: list[Tensor] = [torch.zeros(())] * 4
    for _ in range(chosen["rounds"]):
        start = [one.detach().clone() for one in network.parameters()]
        total = [torch.zeros_like(one) for one in start]
        for held, known, count in zip(outputs, labels, seen, strict=True):
            for parameter, value in zip(network.parameters(), start, strict=True):
                parameter.data = value.clone()
            taken = 0
            while taken < steps:
                order = torch.randperm(len(known), generator=draws)
                for rows in order.split(batch)[: steps - taken]:
                    network.zero_grad()
                    functional.cross_entropy(network(held[rows].double()), known[rows]).backward()
                    for parameter in network.parameters():
                        assert parameter.grad is not None
                        parameter.data -= chosen["client_rate"] * parameter.grad
                    taken += 1
            for add, parameter, value in zip(total, network.parameters(), start, strict=True):
                add += count / sum(seen) * (parameter.detach() - value)
        means = [0.9 * mean + 0.1 * change for mean, change in zip(means, total, strict=True)]
        squares = [0.99 * square + 0.01 * change**2 for square, change in zip(squares, total, strict=True)]
        for parameter, value, mean, square in zip(network.parameters(), start, means, squares, strict=True):
            parameter.data = value + chosen["server_rate"] * mean / (square.sqrt() + 1e-3)
    return [parameter.detach() for parameter in network.parameters()]


@pytest.mark.parametrize(("batch_size", "local_steps"), [(100, 1), (100, 2), (16, 1), (16, 3)])
def test_rounds_are_those_of_the_authors(batch_size: int, local_steps: int) -> None:
    chosen = {"rounds": 4, "client_rate": 0.5, "server_rate": 0.03, "batch_size": batch_size}
    uploads = clients()
    made = aggregate("fens", uploads, hidden=4, local_steps=local_steps, **chosen)
    networks = [tiny.TINY.load(upload[Weights].tensors) for upload in uploads]
    held = [tiny.examples(size, seed=index) for index, size in enumerate(SIZES)]
    outputs = [torch.cat([logits(network, one.inputs) for network in networks], 1) for one in held]
    draws = torch.Generator().manual_seed(0)
    first = draw_combiner(3, 3, 4, draws)
    expected = by_the_authors(outputs, [one.labels for one in held], first, draws, local_steps=local_steps, **chosen)
    assert made.combiner is not None
    for (name, found), wanted in zip(made.combiner.items(), expected, strict=True):
        assert not torch.allclose(found, first[name], atol=1e-3), name
        assert torch.allclose(found.double(), wanted, atol=2e-5), name
    for network, upload in zip(made.networks, uploads, strict=True):
        assert all(torch.equal(network[name], tensor) for name, tensor in upload[Weights].tensors.items())


def test_a_step_on_plain_numbers() -> None:
    # The hidden unit is 1.5, both classes have the output 0, and the slopes at the outputs are -1/2 and 1/2.
    combiner = {
        "hidden_weight": torch.tensor([[1.0, 0.0]]),
        "hidden_bias": torch.tensor([0.5]),
        "head_weight": torch.tensor([[2.0], [0.0]]),
        "head_bias": torch.tensor([-3.0, 0.0]),
    }
    one = Participant(outputs=torch.tensor([[1.0, -2.0]]), labels=torch.tensor([0]))
    change = one.change(combiner, rate=0.1, batch_size=128, steps=1, generator=torch.Generator())
    expected = {"hidden_weight": [[0.1, -0.2]], "hidden_bias": [0.1], "head_weight": [[0.075], [-0.075]]}
    for name, wanted in {**expected, "head_bias": [0.05, -0.05]}.items():
        assert torch.allclose(change[name], torch.tensor(wanted), atol=1e-6), name


def test_outputs_are_combined_network_by_network() -> None:
    networks = [tiny.TINY.load(tiny.initial(seed=seed)).eval() for seed in (1, 2)]
    combiner, inputs = draw_combiner(2, 3, 5, torch.Generator().manual_seed(3)), tiny.examples(7).inputs
    assert [tuple(one.shape) for one in combiner.values()] == [(10, 6), (10,), (3, 10), (3,)]
    side_by_side = torch.cat([network(inputs) for network in networks], 1).double()
    found = Combined(networks, combiner)(inputs)
    assert torch.allclose(found.double(), sequential(combiner)(side_by_side), atol=1e-6)
    assert not torch.allclose(found, Combined(networks[::-1], combiner)(inputs), atol=1e-3)


def test_initial_numbers_are_within_the_bounds_of_linear_layers() -> None:
    drawn = draw_combiner(20, 10, 2, torch.Generator().manual_seed(0))
    for layer, columns in (("hidden", 200), ("head", 40)):
        for part in ("weight", "bias"):
            largest = drawn[f"{layer}_{part}"].abs().max().item()
            assert 0.7 * columns**-0.5 < largest <= columns**-0.5, (layer, part)


def test_it_tells_apart_what_networks_of_one_class_each_claim() -> None:
    # Each network is sure of its own class for any input. How sure it is says whether it is right.
    uploads, spec = [], tiny.LINEAR_WITH_BIAS
    for label, sure in enumerate((40.0, 25.0, 15.0)):
        weight, bias = torch.zeros(3, 1, tiny.SIZE, tiny.SIZE), torch.zeros(3)
        weight[label, 0, label], bias[label] = 1.0, sure
        many = tiny.examples(300, seed=label)
        own = many.labels == label
        examples = Examples(many.inputs[own], many.labels[own])
        weights = Weights({"head.weight": weight.flatten(1), "head.bias": bias})
        uploads.append(Upload(len(examples), {Weights: weights}, asking(examples)))
    test = tiny.examples(200, seed=9)
    made = aggregate("fens", uploads, spec=spec, rounds=300, server_rate=0.01)
    (combined,) = made.modules(spec)
    ensemble = aggregate("ensemble", uploads, spec=spec).modules(spec)
    plain = measure([mean_probability(ensemble, None)], test, torch.ones(1, 3))
    assert plain.accuracy < 0.5
    assert accuracy(combined, test) > 0.8


def test_a_combiner_that_diverges_ends_the_method() -> None:
    with pytest.raises(ArithmeticError, match="the combiner diverged; allowed: a lower client_rate"):
        aggregate("fens", clients(), rounds=1, client_rate=1e30, local_steps=3)


def test_rounds_are_counted_and_what_is_stored_is_measured(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}, "fens": {"rounds": 40, "server_rate": 0.02}})
    rows = done.rows
    # Two hidden units a network: 6 x 9 + 6 numbers, and 3 x 6 + 3; each payload has a header.
    numbers = 60 + 21
    exchanged = CLIENTS * 40 * (256 + 32 * numbers)
    assert rows["fens"].upload_bits == rows["fedavg"].upload_bits + exchanged
    assert rows["fens"].upload_bits_formula == rows["fedavg"].upload_bits_formula + exchanged
    assert rows["fens"].download_bits == rows["ensemble"].download_bits + CLIENTS * 32 * numbers + exchanged
    assert rows["ensemble"].download_bits == CLIENTS * (64 + 256 + CLIENTS * 32 * SIZE)
    artifact = done.aggregate("fens")
    networks = [tiny.TINY.load(read_tensors(artifact, f"network_{one}.safetensors")).eval() for one in range(CLIENTS)]
    combined = Combined(networks, read_tensors(artifact, "combiner.safetensors"))
    dataset = load_data(done.data)
    assert rows["fens"].accuracy == accuracy(combined, select(dataset.test, dataset.spec))
    assert role_of(rows["fens"]) is Role.REFERENCE
    assert rows["fens"].accuracy > 0.4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": {"count": 2}}, "rounds.count=2, but method 'fens' returns no single network"),
        ({"wire": {"budget": "none", "server_view": "secure_sum"}}, "'fens'"),
        ({"privacy": {"epsilon": 4.0, "delta": 1e-3}}, "method 'fens': with privacy, what it asks clients for"),
        ({"methods": {"fens": {"hidden": 0}}}, "methods.fens.hidden"),
        ({"methods": {"fens": {"label_prior": -1}}}, "'fens'"),
    ],
)
def test_what_it_can_not_work_with_is_refused_before_any_work(
    workplace: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make_plan(tiny.tiny_settings(workplace, **({"methods": {"fens": {}}} | changes)))
    assert "\n" not in str(caught.value)
