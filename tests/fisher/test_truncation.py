"""What a truncated Fisher leaves out, against brute force and against its bound."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import Truncated, categorical_root, leading_root
from fedfisher_core.fisher.truncation import plan_chunks, remainders

from .reference import dense_fisher, flat, make, relative_error

CLASSES = 12


def covariance(p: Tensor) -> Tensor:
    return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]


def logits(examples: int, *, sharpness: float) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return sharpness * torch.randn(examples, CLASSES, generator=generator, dtype=torch.float64)


def network(*, sharpness: float, classes: int = CLASSES) -> tuple[nn.Module, Tensor]:
    """A classifier that is surer of some examples than of others."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, classes)).double()
    with torch.no_grad():
        model[2].weight *= sharpness
    inputs = torch.randn(40, 4, dtype=torch.float64) * torch.linspace(0.1, 3, 40, dtype=torch.float64)[:, None]
    return model, inputs


@pytest.mark.parametrize("columns", [1, 2, 5, CLASSES - 1])
def test_what_the_leading_columns_leave_is_the_covariance_of_the_classes_behind(columns: int) -> None:
    p = logits(20, sharpness=2).softmax(1)
    root = leading_root(p, columns)
    assert root.shape == (columns, 20, CLASSES)
    left = covariance(p) - torch.einsum("kni,knj->nij", root, root)
    for found, own in zip(left, p, strict=True):
        behind = own.argsort(descending=True)[columns:]
        tail = own[behind]
        expected = torch.zeros_like(found)
        expected[behind[:, None], behind] = torch.diag(tail) - torch.outer(tail, tail) / tail.sum()
        assert torch.allclose(found, expected, atol=1e-15)
        eigenvalues = torch.linalg.eigvalsh(found)
        assert eigenvalues.min() > -1e-15
        assert eigenvalues.max() <= tail[0] + 1e-15


@pytest.mark.parametrize("sharpness", [0, 1, 20])
def test_remainders_are_the_traces_of_what_each_column_leaves(sharpness: float) -> None:
    outputs = logits(20, sharpness=sharpness)
    p = outputs.softmax(1)
    found = remainders(outputs)
    assert found.shape == (20, CLASSES - 1)
    for columns in range(CLASSES - 1):
        root = leading_root(p, columns)
        left = covariance(p).diagonal(dim1=1, dim2=2).sum(1) - root.square().sum((0, 2))
        assert torch.allclose(found[:, columns], left, atol=1e-14)


def test_remainders_keep_the_digits_of_confident_outputs() -> None:
    found = remainders(torch.tensor([[0.0, -60.0, -70.0], [-900.0, 0.0, -900.0]]))
    # About 2 (p_2 + p_3), and about 2 p_3 of the two classes behind the first.
    assert found[0, 0].item() == pytest.approx(2 * torch.tensor([-60.0, -70.0]).double().exp().sum().item(), rel=1e-9)
    assert found[0, 1].item() == pytest.approx(2 * torch.tensor(-70.0).double().exp().item(), rel=1e-3)
    assert torch.equal(found[1], torch.zeros(2, dtype=torch.float64))


def test_all_columns_are_the_root_whatever_the_order() -> None:
    p = logits(7, sharpness=1).softmax(1)
    root = leading_root(p, CLASSES - 1)
    assert relative_error(torch.einsum("kni,knj->nij", root, root), covariance(p)) < 1e-14
    assert torch.equal(categorical_root(p, 3), categorical_root(p)[:3])


@pytest.mark.parametrize("tolerance", [0.001, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("sharpness", [0.1, 3, 10])
def test_no_more_is_left_out_than_is_tolerated(tolerance: float, sharpness: float) -> None:
    outputs = logits(50, sharpness=sharpness)
    left = remainders(outputs)
    chunks = plan_chunks(outputs, tolerance, fitting=lambda directions: 8)
    assert torch.equal(torch.cat([chunk.examples for chunk in chunks]).sort().values, torch.arange(50))
    padded = torch.cat([left, torch.zeros(50, 1, dtype=left.dtype)], dim=1)
    lost = torch.cat([padded[chunk.examples, chunk.directions] for chunk in chunks])
    assert lost.max() <= tolerance * left[:, 0].mean()
    assert all(len(chunk.examples) <= 8 for chunk in chunks)
    directions = [chunk.directions for chunk in chunks]
    assert directions == sorted(directions, reverse=True)
    if sharpness == 10:
        # An example that is sure of its class needs no more than one of eleven.
        assert sum(len(chunk.examples) * chunk.directions for chunk in chunks) < 3 * 50


def test_the_number_of_directions_of_an_example_does_not_depend_on_the_chunks() -> None:
    outputs = logits(50, sharpness=4)
    kept = []
    for most in (1, 7, 1000):
        directions = torch.zeros(50, dtype=torch.int64)
        for chunk in plan_chunks(outputs, 0.02, fitting=lambda count, most=most: most):
            directions[chunk.examples] = chunk.directions
        kept.append(directions)
    assert torch.equal(kept[0], kept[1])
    assert torch.equal(kept[0], kept[2])
    assert len(kept[0].unique()) > 2


def test_of_an_example_that_needs_too_many_directions_those_are_kept_with_which_it_scatters_least() -> None:
    even = torch.zeros(1, CLASSES, dtype=torch.float64)
    # Five classes hold nearly all of the mass, and seven the rest.
    peaked = torch.tensor([[9.0, 8.8, 8.6, 8.4, 8.2] + [3.0] * 7], dtype=torch.float64)
    for outputs, kept in ((even, 0), (peaked, 5)):
        (chunk,) = plan_chunks(outputs, 1e-9, fitting=lambda directions: 100, most=6)
        assert (chunk.directions, chunk.drawn) == (kept, 6 - kept)


def test_no_example_has_more_directions_than_are_allowed() -> None:
    outputs = logits(50, sharpness=3)
    free = {
        int(one): chunk.directions for chunk in plan_chunks(outputs, 0.01, lambda count: 8) for one in chunk.examples
    }
    chunks = plan_chunks(outputs, 0.01, lambda count: 8, most=4)
    assert torch.equal(torch.cat([chunk.examples for chunk in chunks]).sort().values, torch.arange(50))
    for chunk in chunks:
        needed = [free[int(one)] for one in chunk.examples]
        assert chunk.directions + chunk.drawn == 4 < min(needed) if chunk.drawn else chunk.directions >= max(needed)
    assert {bool(chunk.drawn) for chunk in chunks} == {False, True}


def test_a_truncated_fisher_is_that_of_the_directions_it_keeps() -> None:
    """Its dense matrix lacks the mean of J^T R J, which is nowhere negative."""
    model, inputs = network(sharpness=4)
    exact = dense_fisher(model, inputs)
    found = compute_fisher(model, inputs, approximations=set(Approximation), estimator=Truncated(0.05))
    lost = exact - found.dense
    assert 0 < lost.trace() < exact.trace()
    assert torch.linalg.eigvalsh(lost).min() > -1e-12 * exact.trace()
    assert relative_error(flat(found.diagonal), found.dense.diagonal()) < 1e-12
    # Of the last layer's bias, J is the identity, so that the bound at the outputs is one of its block.
    head = slice(-CLASSES, None)
    assert lost[head, head].trace() <= 0.05 * exact[head, head].trace()


def test_the_factors_at_the_head_are_those_of_the_directions_that_are_kept() -> None:
    model, inputs = network(sharpness=4)
    exact = compute_fisher(model, inputs)
    found = compute_fisher(model, inputs, estimator=Truncated(0.05))
    for name, block in exact.kfac.items():
        assert torch.allclose(found.kfac[name].inputs, block.inputs, rtol=1e-12)
    whole, kept = exact.kfac["2"].outputs, found.kfac["2"].outputs
    assert 0 < (whole - kept).trace() <= 0.05 * whole.trace()
    assert torch.linalg.eigvalsh(whole - kept).min() > -1e-12 * whole.trace()


@pytest.mark.parametrize("name", ["linear, bias", "all three, bias"])
def test_next_to_no_tolerance_gives_the_exact_fisher(name: str) -> None:
    model, inputs = make(name, examples=23)
    exact = compute_fisher(model, inputs, approximations=set(Approximation))
    found = compute_fisher(model, inputs, approximations=set(Approximation), estimator=Truncated(1e-15))
    assert relative_error(found.dense, exact.dense) < 1e-13
    assert relative_error(flat(found.diagonal), flat(exact.diagonal)) < 1e-13
    for layer, block in exact.kfac.items():
        assert relative_error(found.kfac[layer].inputs, block.inputs) < 1e-13
        assert relative_error(found.kfac[layer].outputs, block.outputs) < 1e-13


def test_memory_and_the_order_of_the_examples_change_nothing() -> None:
    model, inputs = network(sharpness=4)
    with pytest.raises(InputError, match=r"memory_limit=1 bytes .* at least") as error:
        compute_fisher(model, inputs, memory_limit=1, estimator=Truncated(0.05))
    least = int(str(error.value).split()[-1])
    found = [
        compute_fisher(model, some, memory_limit=limit, estimator=Truncated(0.05))
        for some, limit in ((inputs, least), (inputs, least + 2**20), (inputs.flip(0), least + 2**20))
    ]
    for other in found[1:]:
        assert relative_error(flat(other.diagonal), flat(found[0].diagonal)) < 1e-13
        assert relative_error(other.kfac["0"].outputs, found[0].kfac["0"].outputs) < 1e-13


def test_two_classes_have_one_direction() -> None:
    model, inputs = network(sharpness=2, classes=2)
    found = compute_fisher(model, inputs, estimator=Truncated(0.9))
    assert relative_error(flat(found.diagonal), flat(compute_fisher(model, inputs).diagonal)) < 1e-13


def test_outputs_that_are_not_numbers_are_told() -> None:
    model, inputs = network(sharpness=1)
    inputs[3, 0] = torch.nan
    with pytest.raises(DivergedClientError, match="an output of the network is not finite"):
        compute_fisher(model, inputs, estimator=Truncated(0.01))


def test_what_cannot_be_truncated_is_refused() -> None:
    for tolerance in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match=f"tolerance={tolerance}; allowed"):
            Truncated(tolerance)
