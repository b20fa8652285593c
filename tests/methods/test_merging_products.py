"""Methods for weights on products of adapters, next to what they would do to the products as one layer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions
from fedfisher_core.methods.shared.products import as_products, dense, factorised, merge_products
from fedfisher_core.models.spec import ModelSpec, Parameters, model
from tests import tiny
from tests.methods.clients import SIZES, aggregate, bind_written, server

WIDTH = tiny.ADAPTED_WIDTH
FULL = replace(tiny.ADAPTED, bias=True, widths=(WIDTH,))
ADAPTED = replace(tiny.ADAPTED, bias=True)
LAYER, NAME = "lora_A", "lora_A.weight"
PLAIN = {"regmean_products": {"off_diagonal": [0.9]}}
EXACT = {"name": "conjugate_gradients", "steps": 500, "damping": 0.0, "tolerance": 1e-9}


@model("joined")
class Joined(nn.Module):
    """The adapted network, with one layer in the place of both factors, which has the name of the first."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.lora_A = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        means = inputs.mean((1, 2))
        return self.head(functional.relu(means + self.lora_A(means)))


JOINED = ModelSpec("joined", tiny.ADAPTED.inputs, tiny.CLASSES, bias=True)


def weights(seed: int, spec: ModelSpec = FULL) -> Parameters:
    drawn = tiny.initial(spec, seed=seed)
    generator = torch.Generator().manual_seed(100 + seed)
    return drawn | {"lora_B.weight": torch.randn(drawn["lora_B.weight"].shape, generator=generator) / 2}


def clients(spec: ModelSpec = FULL) -> list[Upload]:
    """Clients with statistics of examples of their own."""
    made = []
    for seed, size in enumerate(SIZES):
        network = spec.load(weights(seed, spec))
        local = tiny.local(network, tiny.examples(size, seed=seed, spec=spec))
        made.append(Upload(size, {kind: kind.compute(local) for kind in (Weights, Gram, KFAC)}))
    return made


def merged(name: str, uploads: Sequence[Upload], spec: ModelSpec = FULL, **settings: Any) -> Parameters:
    (network,) = aggregate(name, uploads, spec=spec, **(PLAIN.get(name, {}) | settings)).networks
    return network


def test_statistics_of_products_are_those_of_one_layer_in_the_place_of_both() -> None:
    for seed, upload in enumerate(clients(ADAPTED)):
        local = tiny.local(JOINED.load(dense(weights(seed, ADAPTED))), tiny.examples(SIZES[seed], seed=seed))
        seen = as_products(upload)
        for kind in (Weights, Gram, KFAC):
            expected = kind.compute(local).tensors
            assert list(seen[kind].tensors) == list(expected)
            for key, tensor in expected.items():
                torch.testing.assert_close(seen[kind].tensors[key], tensor, rtol=1e-4, atol=1e-6)


def test_methods_see_one_start_and_no_network_but_by_load() -> None:
    def look(seen: Server, uploads: Sequence[Upload]) -> Aggregate:
        start = seen.initial
        assert seen.initial is start
        torch.testing.assert_close(start[NAME], dense(weights(9))[NAME])
        for ask in (seen.spec.skeleton, seen.spec.build):
            with pytest.raises(RuntimeError, match=r"'adapted' .* in the place of adapters.*; allowed: shapes, learnt"):
                ask()
        assert seen.spec.learnt() == seen.spec.shapes().keys()
        assert seen.network(start)(tiny.examples(4).inputs).shape == (4, tiny.CLASSES)
        return Aggregate.of(start)

    (found,) = merge_products(look, server(FULL, initial=weights(9)), clients()).networks
    torch.testing.assert_close(dense(found), dense(weights(9)), rtol=1e-4, atol=1e-5)


def test_products_of_full_rank_are_undone_by_their_factors() -> None:
    product = dense(weights(0))[NAME]
    b, a = factorised(product.double(), WIDTH)
    torch.testing.assert_close(b @ a, product, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "of_weights", "settings"),
    [
        ("regmean_products", "regmean", {"off_diagonal": [0.7]}),
        ("fedfisher_kfac_products", "fedfisher_kfac", {}),
        ("fedfisher_kfac_products", "fedfisher_kfac", {"factored_damping": 0.01}),
        ("ties_products", "ties", {"share": 0.4, "scale": [0.8]}),
        ("dare_products", "dare", {"drop": 0.5}),
    ],
)
def test_at_full_rank_they_do_what_the_method_does_to_one_layer(
    name: str, of_weights: str, settings: dict[str, Any]
) -> None:
    uploads = clients()
    start = tiny.initial(FULL) | {"lora_B.weight": torch.zeros(WIDTH, WIDTH)}
    (found,) = bind_written(name, settings, [FULL])(server(FULL, initial=start), uploads).networks
    (expected,) = bind_written(of_weights, settings, [JOINED])(
        server(JOINED, initial=dense(start)), [as_products(one) for one in uploads]
    ).networks
    assert list(found) == list(tiny.initial(FULL))
    for key, tensor in dense(found).items():
        torch.testing.assert_close(tensor, expected[key], rtol=1e-4, atol=1e-5)


def test_regmean_makes_the_outputs_nearest_to_the_clients_own_on_their_inputs() -> None:
    uploads = clients()
    inputs = [tiny.examples(size, seed=seed).inputs.mean((1, 2)).double() for seed, size in enumerate(SIZES)]
    outputs = [
        rows @ dense(upload[Weights].tensors)[NAME].double().T for rows, upload in zip(inputs, uploads, strict=True)
    ]
    # The clients count by their examples, and the mean is over a client's own.
    expected = torch.linalg.lstsq(torch.cat(inputs), torch.cat(outputs)).solution.T
    found = dense(merged("regmean_products", uploads, off_diagonal=[1.0]))[NAME]
    torch.testing.assert_close(found, expected.float(), rtol=1e-3, atol=1e-4)


def test_fedfisher_is_where_the_dense_objective_has_no_gradient() -> None:
    uploads = clients()
    left, right = 0, 0
    for part, upload in zip(proportions(uploads), uploads, strict=True):
        factors = upload[KFAC].factors
        block = part * torch.kron(factors["lora_B"].outputs.double(), factors[LAYER].inputs.double())
        left = left + block
        right = right + block @ dense(upload[Weights].tensors)[NAME].double().flatten()
    found = dense(merged("fedfisher_kfac_products", uploads, solver=EXACT))[NAME].double()
    assert isinstance(left, Tensor)
    assert isinstance(right, Tensor)
    assert (left @ found.flatten() - right).norm() < 1e-3 * right.norm()


@pytest.mark.parametrize("name", ["regmean_products", "fedfisher_kfac_products", "ties_products", "dare_products"])
def test_below_full_rank_the_leading_singular_triples_stay(name: str) -> None:
    uploads = clients(ADAPTED)
    rank = tiny.RANK
    assert merged(name, uploads, ADAPTED)[NAME].shape == (rank, WIDTH)
    # Factors filled up with zeros have the same products, and leave room for what is cut off.
    wider = [
        Upload(
            one.num_examples,
            {
                **one.statistics,
                Weights: Weights(
                    {
                        key: functional.pad(
                            tensor,
                            {NAME: (0, 0, 0, WIDTH - rank), "lora_B.weight": (0, WIDTH - rank)}.get(key, (0, 0)),
                        )
                        for key, tensor in one[Weights].tensors.items()
                    }
                ),
            },
        )
        for one in uploads
    ]
    # Of the initial weights, all that a method of products sees are their product and the head.
    narrow = tiny.initial(ADAPTED) | {"lora_B.weight": torch.zeros(WIDTH, rank)}
    wide = narrow | {NAME: torch.zeros(WIDTH, WIDTH), "lora_B.weight": torch.zeros(WIDTH, WIDTH)}
    made = {
        start: bind_written(name, PLAIN.get(name, {}), [spec])(server(spec, initial=start_weights), sent).networks[0]
        for start, spec, start_weights, sent in (("cut", ADAPTED, narrow, uploads), ("whole", FULL, wide, wider))
    }
    left, values, right = torch.linalg.svd(dense(made["whole"])[NAME])
    assert values[rank] > 1e-3
    nearest = left[:, :rank] * values[:rank] @ right[:rank]
    torch.testing.assert_close(dense(made["cut"])[NAME], nearest, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["regmean_products", "fedfisher_kfac_products", "knots", "ties_products"])
def test_equal_clients_keep_their_product(name: str) -> None:
    (one, *_) = clients(ADAPTED)
    settings: dict[str, Any] = {"share": 1.0} if name in ("knots", "ties_products") else {}
    settings |= {"off_diagonal": [1.0]} if name == "regmean_products" else {}
    found = merged(name, [one, one, one], ADAPTED, **settings)
    torch.testing.assert_close(dense(found)[NAME], dense(one[Weights].tensors)[NAME], rtol=1e-3, atol=1e-4)


def test_candidates_are_scored_with_the_rank_that_they_will_have() -> None:
    uploads, validation = clients(ADAPTED), tiny.examples(30, seed=5)
    held = server(ADAPTED, validation=validation)
    made = bind_written("regmean_products", {"off_diagonal": [0.1, 0.9]}, [ADAPTED])(held, uploads)
    network = ADAPTED.load(made.networks[0]).eval()
    score = (network(validation.inputs).argmax(1) == validation.labels).double().mean().item()
    assert made.details["validation_accuracy"] == pytest.approx(score)
    assert held.used_validation


def test_knots_is_written_out() -> None:
    uploads, share = clients(FULL), 0.5
    products = [dense(one[Weights].tensors)[NAME].double() for one in uploads]
    left, values, right = torch.linalg.svd(torch.cat(products, dim=1), full_matrices=False)
    parts = [(values[:, None] * right)[:, place : place + WIDTH] for place in range(0, 3 * WIDTH, WIDTH)]
    kept = []
    for part in parts:
        least = part.abs().flatten().sort(descending=True).values[int(share * part.numel()) - 1]
        kept.append(torch.where(part.abs() >= least, part, 0))
    mean = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
    for row in range(WIDTH):
        for column in range(WIDTH):
            numbers = [float(one[row, column]) for one in kept]
            agreeing = [number for number in numbers if number * sum(numbers) > 0]
            mean[row, column] = sum(agreeing) / max(1, len(agreeing))
    found = merged("knots", uploads, share=share, scale=[0.6])
    torch.testing.assert_close(dense(found)[NAME], (0.6 * left @ mean).float(), rtol=1e-3, atol=1e-4)
    head = sum(
        part * one[Weights].tensors["head.weight"] for part, one in zip(proportions(uploads), uploads, strict=True)
    )
    torch.testing.assert_close(found["head.weight"], head)


def test_clients_that_changed_nothing_leave_a_product_of_zero() -> None:
    still = weights(0, ADAPTED) | {"lora_B.weight": torch.zeros(WIDTH, tiny.RANK)}
    found = merged("knots", [Upload(5, {Weights: Weights(still)}) for _ in range(2)], ADAPTED)
    assert torch.equal(dense(found)[NAME], torch.zeros(WIDTH, WIDTH))


@pytest.mark.parametrize(
    "name", ["regmean_products", "fedfisher_kfac_products", "ties_products", "dare_products", "knots"]
)
def test_a_network_without_adapters_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"has no adapters; allowed: networks with 'lora_A' and"):
        bind_written(name, {}, [tiny.TINY])
