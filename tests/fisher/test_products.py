from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import Empirical, Exact
from fedfisher_core.fisher.products import FisherProduct, leading_directions
from fedfisher_core.models.spec import ModelSpec
from tests import arranged, tiny

ROWS = ModelSpec("mlp", arranged.NUMBERS, classes=3, widths=(4, 3, 3), bias=True)
SPECS = {"tiny": tiny.TINY_WITH_BIAS, "linear": tiny.LINEAR, "rows": ROWS}
EXAMPLES = 23


def product(spec: ModelSpec, *, empirical: bool = False) -> FisherProduct:
    # Larger weights make probabilities that are neither uniform nor certain.
    weights = {name: 2 * tensor.double() for name, tensor in tiny.initial(spec).items()}
    inputs = torch.randn(EXAMPLES, *spec.inputs.shape, generator=torch.Generator().manual_seed(0)).double()
    labels = tiny.examples(EXAMPLES).labels if empirical else None
    # The network's own weights do not count.
    return FisherProduct(spec.load(tiny.initial(spec, seed=1)).double().eval(), weights, inputs, labels)


def whole(of: FisherProduct, spec: ModelSpec) -> Tensor:
    """The same Fisher as a matrix, from the gradients of every example."""
    dense = compute_fisher(
        spec.load({name: tensor.float() for name, tensor in of.weights.items()}).double().eval(),
        of.inputs,
        of.labels,
        approximations={Approximation.DENSE},
        estimator=Exact() if of.labels is None else Empirical(),
    ).dense
    assert dense is not None
    return dense


@pytest.mark.parametrize("empirical", [False, True], ids=["exact", "empirical"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_products_are_those_of_the_whole_matrix(spec: ModelSpec, empirical: bool) -> None:
    of = product(spec, empirical=empirical)
    columns = torch.randn(of.size, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.allclose(of(columns), whole(of, spec) @ columns, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spec", [ModelSpec(n, arranged.SEQUENCES, 3, widths=(4, 6)) for n in ("gru", "transformer")])
def test_products_exist_for_networks_on_tokens(spec: ModelSpec) -> None:
    network = spec.load(tiny.initial(spec)).double().eval()
    inputs = spec.inputs.drawn(5, torch.Generator().manual_seed(0))
    weights = {name: tensor.detach() for name, tensor in network.named_parameters()}
    of = FisherProduct(network, weights, inputs)
    column = torch.randn(of.size, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for tokens in inputs:
        logits = network(tokens[None])[0]
        rows = []
        for logit in logits:
            gradients = torch.autograd.grad(logit, list(network.parameters()), retain_graph=True)
            rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
        p, jacobian = logits.detach().softmax(0), torch.stack(rows)
        total = total + jacobian.T @ ((p.diag() - torch.outer(p, p)) @ (jacobian @ column))
    assert torch.allclose(of(column), total / len(inputs), rtol=1e-9, atol=1e-12)


def test_batches_do_not_count() -> None:
    of = product(tiny.LINEAR)
    many = FisherProduct(of.network, of.weights, of.inputs.repeat(20, 1, 1, 1))
    column = torch.ones(of.size, 1, dtype=torch.float64)
    assert torch.allclose(many(column), of(column))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_all_directions_make_the_fisher(spec: ModelSpec) -> None:
    of = product(spec)
    found = leading_directions(of, of.size + 5)
    assert found.shape == (of.size, of.size)
    assert torch.allclose(found.T @ found, whole(of, spec), atol=1e-12)


@pytest.mark.parametrize("rank", [1, 3, 10])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_leading_directions_are_eigenvectors(spec: ModelSpec, rank: int) -> None:
    of = product(spec)
    found, expected = leading_directions(of, rank), torch.linalg.eigvalsh(whole(of, spec)).flip(0)[:rank]
    lengths = found.square().sum(1)
    assert torch.allclose(lengths, expected, rtol=0.02)
    assert all(one >= other for one, other in pairwise(lengths.tolist()))
    # At right angles to each other.
    inside = found @ found.T
    assert torch.allclose(inside, inside.diagonal().diag(), atol=1e-10 * float(inside.max()))


def test_a_fisher_of_few_directions_leaves_the_rest_at_zero() -> None:
    of = product(tiny.LINEAR)
    # One example has as many directions as there are classes, less one.
    one = FisherProduct(of.network, of.weights, of.inputs[:1])
    found = leading_directions(one, 6)
    assert (found[:2].norm(dim=1) > 1e-3).all()
    assert (found[2:].norm(dim=1) < 1e-6).all()
    assert torch.allclose(found.T @ found, whole(one, tiny.LINEAR), atol=1e-12)


def test_the_same_fisher_has_the_same_directions() -> None:
    assert torch.equal(leading_directions(product(ROWS), 3), leading_directions(product(ROWS), 3))


@pytest.mark.parametrize(("features", "examples", "rank"), [(10, 1, 3), (13, 1, 4), (20, 2, 6)])
def test_directions_of_a_fisher_of_small_rank_are_exact_in_single_precision(
    features: int, examples: int, rank: int
) -> None:
    for seed in range(15):
        generator = torch.Generator().manual_seed(seed)
        network = nn.Linear(features, 2)
        # Larger weights would make probabilities of 1, and a Fisher of rounding.
        weights = {name: torch.randn(one.shape, generator=generator) / 5 for name, one in network.named_parameters()}
        of = FisherProduct(network, weights, torch.randn(examples, features, generator=generator))
        exact = of(torch.eye(of.size))
        found = leading_directions(of, rank)
        # Each example adds a matrix of rank 1, as two probabilities move together.
        assert (found.T @ found - exact).norm() <= 1e-4 * exact.norm(), seed
