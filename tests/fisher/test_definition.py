"""Every approximation against its definition, on networks small enough to write the Fisher out."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import Backend, compute_fisher
from fedfisher_core.fisher.estimators import Empirical, MonteCarlo
from fedfisher_core.models.batch_norm import BatchNorm

from .reference import (
    NETWORKS,
    NORMALISED,
    SEQUENCES,
    SINGLE,
    UNFACTORED,
    dense_fisher,
    flat,
    kfac_by_definition,
    make,
    relative_error,
)

ALL = set(Approximation)
NO_FACTORS = ALL - {Approximation.KFAC}


@pytest.mark.drawn(16)
@pytest.mark.parametrize("network", [*NETWORKS, *NORMALISED, *SEQUENCES, *UNFACTORED])
def test_dense_and_diagonal_are_the_mean_of_jacobians_around_the_hessian(network: str) -> None:
    model, inputs = make(network, examples=5)
    fisher = compute_fisher(model, inputs, approximations=NO_FACTORS if network in UNFACTORED else ALL)
    expected = dense_fisher(model, inputs)
    assert relative_error(fisher.dense, expected) < 1e-12
    assert relative_error(flat(fisher.diagonal), expected.diagonal()) < 1e-12
    assert {name: d.shape for name, d in fisher.diagonal.items()} == {
        name: p.shape for name, p in model.named_parameters()
    }


@pytest.mark.drawn(8)
@pytest.mark.parametrize("network", [*NETWORKS, *NORMALISED])
def test_kronecker_factors_follow_their_definition(network: str) -> None:
    model, inputs = make(network, examples=5)
    fisher = compute_fisher(model, inputs)
    expected = kfac_by_definition(model, inputs)
    assert [name for name in fisher.kfac if name in expected or network in NETWORKS] == list(expected)
    for name, block in expected.items():
        assert relative_error(fisher.kfac[name].inputs, block.inputs) < 1e-12
        assert relative_error(fisher.kfac[name].outputs, block.outputs) < 1e-12


@pytest.mark.parametrize("network", list(SINGLE))
def test_nngeometry_agrees(network: str) -> None:
    model, inputs = make(network, examples=9, dtype=torch.float32)
    ours = compute_fisher(model, inputs)
    theirs = compute_fisher(model, inputs, backend=Backend.NNGEOMETRY)
    for name, diagonal in theirs.diagonal.items():
        assert relative_error(ours.diagonal[name], diagonal) < 1e-4
    for name, block in theirs.kfac.items():
        assert relative_error(ours.kfac[name].inputs, block.inputs) < 1e-4
        assert relative_error(ours.kfac[name].outputs, block.outputs) < 1e-4
    model, inputs = model.double(), inputs.double()
    assert relative_error(flat(theirs.diagonal).double(), dense_fisher(model, inputs).diagonal()) < 1e-4


@pytest.mark.parametrize("bias", [False, True])
def test_kfac_is_exact_for_linear_layers_and_one_example(bias: bool) -> None:
    model, inputs = make(f"linear, {'bias' if bias else 'no bias'}", examples=1)
    fisher = compute_fisher(model, inputs)
    expected = dense_fisher(model, inputs)
    positions = dict(zip(dict(model.named_parameters()), _positions(model), strict=True))
    for name, block in fisher.kfac.items():
        index = positions[f"{name}.weight"]
        if bias:
            index = torch.cat([index, positions[f"{name}.bias"][:, None]], dim=1)
        index = index.flatten()
        assert relative_error(torch.kron(block.outputs, block.inputs), expected[index[:, None], index]) < 1e-12


@pytest.mark.parametrize("network", list(NORMALISED))
def test_the_block_of_a_normalised_unit_is_whole(network: str) -> None:
    model, inputs = make(network, examples=5)
    fisher = compute_fisher(model, inputs)
    expected = dense_fisher(model, inputs)
    positions = dict(zip(dict(model.named_parameters()), _positions(model), strict=True))
    for name, layer in model.named_modules():
        if not isinstance(layer, nn.GroupNorm | nn.LayerNorm | BatchNorm):
            continue
        for unit in range(len(layer.weight)):
            own = [positions[f"{name}.{kind}"][unit] for kind, _ in layer.named_parameters()]
            index = torch.stack(own)
            block = fisher.kfac[f"{name}[{unit + 1} of {len(layer.weight)}]"]
            assert relative_error(torch.kron(block.outputs, block.inputs), expected[index[:, None], index]) < 1e-12
    assert list(fisher.kfac)[-1].startswith("last" if network.startswith("features") else "head")


def test_kfac_is_too_small_by_the_number_of_positions_where_it_can_be_known() -> None:
    """Constant inputs and summed outputs: every position has the same patch and the same gradient."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(2, 3, 2, bias=True)
    model = nn.Sequential(convolution, _SumPositions()).double()
    inputs = torch.tensor([1.5, -0.5], dtype=torch.float64).view(1, 2, 1, 1).expand(1, 2, 4, 5)
    block = compute_fisher(model, inputs).kfac["0"]
    weight, bias = _positions(model)
    index = torch.cat([weight.flatten(1), bias[:, None]], dim=1).flatten()
    expected = dense_fisher(model, inputs)[index[:, None], index]
    assert relative_error(12 * torch.kron(block.outputs, block.inputs), expected) < 1e-12


@pytest.mark.parametrize(
    "network",
    ["linear, bias", "all three, bias", "sequences, bias", "groups, bias", "grouped, bias", "whole maps, bias"],
)
def test_empirical_averages_the_gradients_of_the_examples(network: str) -> None:
    model, inputs = make(network, examples=6)
    labels = torch.tensor([0, 2, 1, 1, 0, 2])
    approximations = NO_FACTORS if network in UNFACTORED else ALL
    fisher = compute_fisher(model, inputs, labels, approximations=approximations, estimator=Empirical())
    gradients = []
    for example, label in zip(inputs, labels, strict=True):
        value = nn.functional.cross_entropy(model(example[None]), label[None])
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, list(model.parameters()))]))
    expected = torch.stack(gradients).T @ torch.stack(gradients) / 6
    assert relative_error(fisher.dense, expected) < 1e-12
    assert relative_error(flat(fisher.diagonal), expected.diagonal()) < 1e-12


@pytest.mark.parametrize("network", ["linear, no bias", "padding, bias"])
def test_monte_carlo_converges_to_exact(network: str) -> None:
    model, inputs = make(network, examples=40)
    exact = compute_fisher(model, inputs)
    errors = {}
    for samples in (4, 400):
        estimator = MonteCarlo(samples)
        generator = torch.Generator().manual_seed(1)
        fisher = compute_fisher(model, inputs, estimator=estimator, generator=generator)
        errors[samples] = [relative_error(flat(fisher.diagonal), flat(exact.diagonal))]
        for name, block in exact.kfac.items():
            found = fisher.kfac[name]
            errors[samples].append(
                relative_error(torch.kron(found.outputs, found.inputs), torch.kron(block.outputs, block.inputs))
            )
    # Ten times less with a hundred times the samples; the bounds leave a factor of three.
    assert max(errors[400]) < 0.04
    assert max(errors[400]) < max(errors[4]) / 3


def test_monte_carlo_follows_its_generator() -> None:
    model, inputs = make("linear, bias", examples=20)

    def draw(seed: int, memory_limit: int = 2**28) -> Tensor:
        fisher = compute_fisher(
            model,
            inputs,
            estimator=MonteCarlo(2),
            generator=torch.Generator().manual_seed(seed),
            memory_limit=memory_limit,
        )
        return flat(fisher.diagonal)

    assert torch.equal(draw(1), draw(1))
    assert relative_error(draw(2), draw(1)) > 1e-3


def _positions(model: nn.Module) -> list[Tensor]:
    """Each parameter's places in the order of all parameters."""
    shapes = [p.shape for p in model.parameters()]
    places = torch.arange(sum(s.numel() for s in shapes)).split([s.numel() for s in shapes])
    return [place.view(shape) for place, shape in zip(places, shapes, strict=True)]


class _SumPositions(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.sum(dim=(2, 3))
