import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.null_space import NullSpaceProjection, OfficialProjection, span_projection
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.layers import Padding
from fedfisher_core.models.spec import ModelSpec, model
from tests import tiny
from tests.client.statistics.clients import local

SPECS = [tiny.TINY, tiny.TINY_WITH_BIAS, tiny.LINEAR]
KINDS: list[type[Statistic]] = [NullSpaceProjection, OfficialProjection]
EXAMPLES = tiny.examples(23)
by_spec = pytest.mark.parametrize("spec", SPECS, ids=["tiny", "tiny with bias", "linear"])
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@model("pointwise")
class Pointwise(nn.Module):
    """A convolution whose kernel is larger than its unpadded input, behind one whose patches are many."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.wide = nn.Conv2d(spec.inputs.channels, 8, kernel_size=1, bias=spec.bias)
        self.conv = nn.Conv2d(8, 3, kernel_size=spec.inputs.height + 1, padding=spec.inputs.height // 2, bias=spec.bias)
        self.head = nn.Linear(3 * spec.inputs.height**2, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.conv(self.wide(inputs)).relu().flatten(1))


POINTWISE = ModelSpec("pointwise", Images(1, 4, 4), classes=3, bias=True)


class Padded(nn.Module):
    """A linear layer at each token, of which 0 is padding, and a mean that does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.padding, self.each, self.head = Padding(0), nn.Linear(3, 2), nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.padding(inputs)
        rows = torch.eye(5)[:, :3][tokens] + tokens[..., None]
        seen = (tokens != 0)[..., None]
        return self.head((self.each(rows) * seen).sum(1) / seen.sum(1))


def test_projections_do_not_count_padding() -> None:
    network, labels = Padded(), torch.zeros(2, dtype=torch.int64)
    tokens = torch.tensor([[1, 2, 3], [3, 4, 1]])
    found = [
        NullSpaceProjection.compute(replace(local(tiny.TINY), network=network, examples=Examples(one, labels))).tensors
        for one in (tokens, functional.pad(tokens, (0, 9)))
    ]
    for name, expected in found[0].items():
        assert torch.allclose(found[1][name], expected, atol=1e-6), name


def inputs_of(network: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """What enters every layer."""
    kept: dict[str, Tensor] = {}
    layers = [name for name, one in network.named_modules() if isinstance(one, nn.Linear | nn.Conv2d)]
    hooks = [
        network.get_submodule(name).register_forward_pre_hook(lambda _, x, name=name: kept.update({name: x[0]}))
        for name in layers
    ]
    with torch.no_grad():
        network(batch)
    for hook in hooks:
        hook.remove()
    return kept


def rows_of(network: nn.Module, examples: Examples) -> dict[str, np.ndarray]:
    """X of every layer, one row a patch or example."""
    result = {}
    for name, inputs in inputs_of(network, examples.inputs).items():
        layer = network.get_submodule(name)
        if isinstance(layer, nn.Conv2d):
            unfolded = nn.functional.unfold(inputs, layer.kernel_size, padding=layer.padding, stride=layer.stride)
            inputs = unfolded.transpose(1, 2).flatten(0, 1)
        if layer.bias is not None:
            inputs = torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)
        result[name] = inputs.double().numpy()
    return result


def network_of(spec: ModelSpec) -> nn.Module:
    return spec.load({name: 2 * tensor for name, tensor in tiny.initial(spec).items()}).eval()


@pytest.mark.parametrize("spec", [*SPECS, POINTWISE], ids=["tiny", "tiny with bias", "linear", "pointwise"])
def test_projections_are_the_papers_on_the_inputs_of_every_layer(spec: ModelSpec) -> None:
    examples = tiny.examples(23, spec=spec)
    found = NullSpaceProjection.compute(tiny.local(network_of(spec), examples)).tensors
    rows = rows_of(network_of(spec), examples)
    assert list(found) == list(rows)
    for name, x in rows.items():
        z = np.square(x).mean() * len(x)
        expected = x.T @ np.linalg.solve(x @ x.T + z * np.eye(len(x)), x)
        assert found[name].numpy() == pytest.approx(expected, abs=1e-5), name


def test_the_number_of_examples_at_a_time_does_not_matter() -> None:
    many = tiny.examples(1203)
    found = NullSpaceProjection.compute(tiny.local(network_of(tiny.TINY_WITH_BIAS), many)).tensors
    for name, x in rows_of(network_of(tiny.TINY_WITH_BIAS), many).items():
        expected = span_projection(torch.from_numpy(x.T @ x / len(x)))
        assert torch.allclose(found[name].double(), expected, atol=1e-5), name


def test_a_small_regulariser_gives_the_orthogonal_projection_on_the_span() -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = span_projection(x.T @ x / 4, 1e-9)
    assert torch.allclose(found, torch.linalg.pinv(x) @ x, atol=1e-7)
    assert torch.allclose(found @ found, found, atol=1e-7)
    assert torch.allclose(x @ found, x, atol=1e-6)


def test_a_projection_does_not_depend_on_the_scale_of_the_inputs() -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(span_projection(x.T @ x), span_projection(1e-6 * x.T @ x))


@by_kind
@by_spec
def test_projections_are_symmetric_with_eigenvalues_between_0_and_1(spec: ModelSpec, kind: type[Statistic]) -> None:
    for name, matrix in kind.compute(tiny.local(network_of(spec), EXAMPLES)).tensors.items():
        assert torch.equal(matrix, matrix.T), name
        values = torch.linalg.eigvalsh(matrix.double())
        assert values.min() > -1e-6
        assert values.max() < 1 + 1e-6
        assert values.max() - values.min() > 0.1


def test_inputs_that_are_always_0_are_in_the_null_space() -> None:
    inputs = EXAMPLES.inputs.clone()
    inputs[:, 0, 0, :2] = 0
    examples = Examples(inputs=inputs, labels=EXAMPLES.labels)
    client = tiny.local(network_of(tiny.LINEAR), examples)
    assert not NullSpaceProjection.compute(client).tensors["head"][:2].any()
    official = OfficialProjection.compute(client).tensors["head"]
    assert torch.equal(official[:2], torch.eye(36)[:2])


@by_kind
def test_layers_that_see_nothing_have_finite_projections(kind: type[Statistic]) -> None:
    dead = {name: -tensor.abs() if name == "conv.weight" else tensor for name, tensor in tiny.initial().items()}
    inputs = EXAMPLES.inputs.abs()
    statistic = kind.compute(tiny.local(tiny.TINY.load(dead), Examples(inputs=inputs, labels=EXAMPLES.labels)))
    statistic.require_finite()
    size = len(statistic.tensors["hidden"])
    expected = torch.zeros(size, size) if kind is NullSpaceProjection else torch.eye(size)
    assert torch.equal(statistic.tensors["hidden"], expected)


def position_by_position(network: nn.Module, examples: Examples, batch_size: int) -> dict[str, np.ndarray]:
    """The authors' recursion."""
    result: dict[str, np.ndarray] = {}
    for start in range(0, len(examples), batch_size):
        kept = inputs_of(network, examples.inputs[start : start + batch_size])
        for name, inputs in kept.items():
            layer = network.get_submodule(name)
            mean = inputs.double().mean(0).numpy()
            rows = [mean]
            epsilon = 0.01**0.8
            if isinstance(layer, nn.Conv2d):
                epsilon = 0.00001**0.8
                high, wide = layer.kernel_size
                down = math.floor(1 + (mean.shape[1] - high) / 2)
                across = math.floor(1 + (mean.shape[2] - wide) / 2)
                rows = [
                    mean[:, 2 * i : 2 * i + high, 2 * j : 2 * j + wide].reshape(-1)
                    for i in range(down)
                    for j in range(across)
                ]
            for row in rows:
                r = row if layer.bias is None else np.append(row, 1)
                p = result.setdefault(name, np.eye(len(r)))
                k = p @ r
                result[name] = p - 0.5 * np.outer(k, k) / (epsilon + r @ k)
    return result


@by_spec
def test_the_official_projection_is_the_authors_recursion(spec: ModelSpec) -> None:
    client = tiny.local(network_of(spec), EXAMPLES)
    expected = position_by_position(network_of(spec), EXAMPLES, client.batch_size)
    found = OfficialProjection.compute(client).tensors
    assert list(found) == list(expected)
    for name, matrix in found.items():
        assert matrix.numpy() == pytest.approx(expected[name], abs=1e-6), name
        assert np.abs(expected[name] - np.eye(len(matrix))).max() > 0.1


def test_maps_smaller_than_the_kernel_leave_the_official_projection_the_identity() -> None:
    examples = tiny.examples(9, spec=POINTWISE)
    found = OfficialProjection.compute(tiny.local(network_of(POINTWISE), examples)).tensors
    assert torch.equal(found["conv"], torch.eye(8 * 25 + 1))


@by_kind
def test_computing_projections_leaves_no_trace_in_the_network(kind: type[Statistic]) -> None:
    client = tiny.local(network_of(tiny.TINY), EXAMPLES)
    kind.compute(client)
    assert not any(module._forward_hooks for module in client.network.modules())


@by_kind
def test_projections_refuse_a_layer_by_its_name(kind: type[Statistic]) -> None:
    spec = ModelSpec("normalised", Images(1, tiny.SIZE, tiny.SIZE), classes=tiny.CLASSES)
    with pytest.raises(UnsupportedLayerError, match="layer 'norm' has type BatchNorm2d"):
        kind.shapes(spec)
