"""Gram matrices of what enters linear layers."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec
from tests import arranged, tiny
from tests.client.statistics.clients import by_any_spec, examples_of, local


@by_any_spec
def test_gram_matrices_are_second_moments_of_layer_inputs(spec: ModelSpec) -> None:
    examples = examples_of(spec)
    client = local(spec, examples=examples)
    layers: dict[str, nn.Linear] = {
        name: layer for name, layer in client.network.named_modules() if isinstance(layer, nn.Linear)
    }
    seen: dict[str, list[np.ndarray]] = {name: [] for name in layers}
    for name, layer in layers.items():
        # Of a sequence, every place is an input.
        layer.register_forward_pre_hook(
            lambda _, inputs, name=name: seen[name].extend(inputs[0].flatten(0, -2).numpy())
        )
    with torch.no_grad():
        for inputs in examples.inputs:
            client.network(inputs[None])
    expected = {name: np.mean([np.outer(x, x) for x in rows], axis=0) for name, rows in seen.items()}
    grams = Gram.compute(client).tensors
    assert list(grams) == list(layers)
    for name, gram in grams.items():
        assert gram.numpy() == pytest.approx(expected[name], rel=1e-4, abs=1e-5)


def test_computing_gram_matrices_leaves_no_trace_in_the_network() -> None:
    client = local(tiny.TINY)
    first = Gram.compute(client).tensors
    second = Gram.compute(client).tensors
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(module._forward_pre_hooks for module in client.network.modules())


def test_gram_matrices_of_layers_that_see_sequences_are_means_over_all_places() -> None:
    spec = ModelSpec("places", arranged.NUMBERS, classes=3)
    rows = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    client = local(spec, examples=Examples(inputs=rows, labels=torch.zeros(30, dtype=torch.int64)))
    found = Gram.compute(client).tensors["each"]
    halves = torch.cat([rows[:, :3], rows[:, 3:]])
    assert torch.allclose(found, halves.T @ halves / 60, atol=1e-5)


class Padded(nn.Module):
    """A linear layer at each token, of which 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.each = nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.each(self.tokens(inputs)).mean(1)


def test_gram_matrices_do_not_count_padding() -> None:
    network = Padded()
    tokens = torch.tensor([[1, 2, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]])
    client = dataclasses.replace(
        local(tiny.TINY), network=network, examples=Examples(tokens, torch.zeros(3, dtype=torch.int64))
    )
    rows = network.tokens.weight[[1, 2, 3]].detach()
    assert torch.allclose(Gram.compute(client).tensors["each"], rows.T @ rows / 3)


class Attending(nn.Module):
    """Torch's own attention before a linear layer, and a layer that is used or not."""

    def __init__(self, *, spare: bool) -> None:
        super().__init__()
        self.attention, self.head = nn.TransformerEncoderLayer(4, 2, 5, batch_first=True), nn.Linear(4, 2)
        self.spare = nn.Linear(4, 2) if spare else None

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.attention(inputs.unflatten(1, (3, 4))).mean(1))


def test_gram_matrices_are_of_layers_that_show_their_inputs() -> None:
    examples = Examples(torch.randn(5, 12), torch.zeros(5, dtype=torch.int64))
    client = dataclasses.replace(local(tiny.TINY), network=Attending(spare=False).eval(), examples=examples)
    assert list(Gram.compute(client).tensors) == ["attention.linear1", "attention.linear2", "head"]
    with pytest.raises(UnsupportedLayerError, match="layer 'spare' is never called in the forward pass"):
        Gram.compute(dataclasses.replace(client, network=Attending(spare=True).eval()))


class Halved(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) / 2


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Halved(4, 3), "layer '0' has type Halved, whose forward is not that of Linear; allowed: Linear as it is"),
        (weight_norm(nn.Linear(4, 3)), "layer '0' has type ParametrizedLinear, which makes its weights of others"),
    ],
)
def test_layers_that_are_not_linear_in_their_inputs_are_refused(layer: nn.Module, message: str) -> None:
    network = nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 3))
    with pytest.raises(UnsupportedLayerError, match=message):
        Gram.compute(tiny.local(network, Examples(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))))
