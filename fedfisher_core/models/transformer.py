"""A small transformer on sequences of tokens."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import require_tokens
from fedfisher_core.models.spec import ModelSpec, model

BLOCKS = 2
HEADS = 4


class _Block(nn.Module):
    """Self-attention of all places to all, and two layers at each place; both are normalised first and skipped."""

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
    """Embeddings of tokens and places, 64 numbers wide, two blocks of four heads, and a linear layer on the last place.

    A block's hidden layer has 128 units. Every place sees all others: what is predicted comes after all of them.
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
        """Compute logits.

        Args:
            inputs: tokens, shape (batch, length).

        Returns:
            Shape (batch, classes).
        """
        # Each example looks its places up by itself, so that each has a gradient of its own.
        places = torch.arange(inputs.shape[1], device=inputs.device).expand(inputs.shape)
        return self.head(self.norm(self.blocks(self.tokens(inputs) + self.places(places)))[:, -1])
