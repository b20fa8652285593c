"""Networks on sequences of tokens: a small recurrent network and a small transformer."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import require_tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec, model


@model("gru")
class GRU(nn.Module):
    """Embeddings of 16 numbers, 128 gated recurrent units, and a linear layer on their last state."""

    def __init__(self, spec: ModelSpec) -> None:
        tokens = require_tokens(spec.inputs, f"model {spec.name!r}")
        super().__init__()
        embedded, units = spec.widths_or((16, 128))
        self.embedding = nn.Embedding(tokens.vocabulary, embedded)
        self.gru = nn.GRU(embedded, units, bias=spec.bias, batch_first=True)
        self.head = nn.Linear(units, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of tokens of shape (batch, length)."""
        states, _ = self.gru(self.embedding(inputs))
        return self.head(states[:, -1])


BLOCKS = 2
HEADS = 4


class _Block(nn.Module):
    """Self-attention between all positions, then two layers at each; both have normalised inputs and a skip."""

    def __init__(self, width: int, hidden: int, bias: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, bias=bias)
        self.attention = nn.Linear(width, 3 * width, bias=bias)
        self.mix = nn.Linear(width, width, bias=bias)
        self.norm2 = nn.LayerNorm(width, bias=bias)
        self.fc1 = nn.Linear(width, hidden, bias=bias)
        self.fc2 = nn.Linear(hidden, width, bias=bias)

    def forward(self, places: Tensor) -> Tensor:
        places = places + self.mix(self._attend(self.norm1(places)))
        return places + self.fc2(functional.relu(self.fc1(self.norm2(places))))

    def _attend(self, places: Tensor) -> Tensor:
        # Shape (3, batch, heads, length, numbers of a head).
        parts = self.attention(places).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts.unbind()
        weights = (queries @ keys.mT / keys.shape[-1] ** 0.5).softmax(dim=-1)
        return (weights @ values).transpose(1, 2).flatten(2)


@model("transformer")
class Transformer(nn.Module):
    """Embeddings of tokens and positions, 64 numbers wide, two blocks of four heads, and a linear layer.

    A block's hidden layer has 128 units. Every position sees all others, and the linear layer reads the last position:
    the label comes after all of them.
    """

    def __init__(self, spec: ModelSpec) -> None:
        tokens = require_tokens(spec.inputs, f"model {spec.name!r}")
        width, hidden = spec.widths_or((64, 128))
        if width % HEADS:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; allowed: a first one divisible by {HEADS}")
        super().__init__()
        self.tokens = nn.Embedding(tokens.vocabulary, width)
        self.places = nn.Embedding(tokens.length, width)
        self.blocks = nn.Sequential(*(_Block(width, hidden, spec.bias) for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(width, bias=spec.bias)
        self.head = nn.Linear(width, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of tokens of shape (batch, length)."""
        # Each example looks up its own positions, so that each has its own gradient.
        places = torch.arange(inputs.shape[1], device=inputs.device).expand(inputs.shape)
        return self.head(self.norm(self.blocks(self.tokens(inputs) + self.places(places)))[:, -1])
