"""K-FAC of layers that are applied at several positions of an example (Eschenhagen et al. 2023).

With inputs x_{n,r} and gradients g_{n,r} at position r of example n, *expand* takes every position as an example:
A = mean over n and r of x x^T, G = mean over n of sum_r g g^T. It is exact for deep linear networks whose loss is a
sum over positions. *Reduce* takes x_n = mean_r x_{n,r} and g_n = sum_r g_{n,r} first. It is exact for deep linear
networks whose outputs are means over positions.
"""

from collections.abc import Mapping
from enum import StrEnum

import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.layers import Padding


class WeightSharing(StrEnum):
    """The form of K-FAC for layers that are applied at several positions."""

    EXPAND = "expand"
    """Every position counts as an example."""

    REDUCE = "reduce"
    """Inputs are averaged over the positions of an example first, and gradients are added."""


def input_rows(inputs: Tensor, counted: Tensor | None, sharing: WeightSharing, *, bias: bool) -> tuple[Tensor, int]:
    """The rows x of which A is the mean of x x^T.

    Args:
        inputs: shape (examples, positions, features).
        counted: which positions count, shape (examples, positions); None for all.
        bias: whether a row ends in a one.

    Returns:
        The rows, and how many of them the mean is over; rows of positions that don't count are 0.
    """
    rows = torch.cat([inputs, inputs.new_ones(*inputs.shape[:2], 1)], dim=2) if bias else inputs
    rows = rows if counted is None else rows * counted[:, :, None]
    if sharing is WeightSharing.EXPAND:
        return rows.flatten(0, 1), counted_positions(inputs.shape[:2], counted)
    if counted is None:
        return rows.mean(1), len(rows)
    # An example without any position that counts has the mean 0, and does not count.
    return rows.sum(1) / counted.sum(1, keepdim=True).clamp(min=1), int(counted.any(1).sum())


def output_rows(gradients: Tensor, counted: Tensor | None, sharing: WeightSharing) -> Tensor:
    """The rows g of which G is the sum of g g^T, divided by the number of examples; see `input_rows`."""
    gradients = gradients if counted is None else gradients * counted[:, :, None]
    return gradients.flatten(0, 1) if sharing is WeightSharing.EXPAND else gradients.sum(1)


def counted_positions(shape: torch.Size, counted: Tensor | None) -> int:
    """The number of positions of all examples that count."""
    return shape.numel() if counted is None else int(counted.sum())


def padding_of(layer: nn.Module) -> int | None:
    """The token that an embedding, or a `Padding` in its place, names as padding; None for any other layer."""
    return layer.padding_idx if isinstance(layer, nn.Embedding | Padding) else None


def without_padding(layers: Mapping[str, nn.Module], inputs: Mapping[str, Tensor]) -> Tensor | None:
    """Which positions hold no padding, by what layers name as their padding, see `padding_of`.

    Args:
        inputs: by layer, examples first.

    Returns:
        Shape (examples, positions); None where no layer names a padding.

    Raises:
        UnsupportedLayerError: two layers with padding see different numbers of positions.
    """
    counted: Tensor | None = None
    for name, layer in layers.items():
        if (padding := padding_of(layer)) is not None:
            here = inputs[name] != padding
            require_positions(name, here.shape[1], counted)
            counted = here if counted is None else counted & here
    return counted


def require_positions(name: str, positions: int, counted: Tensor | None) -> None:
    """Refuse a layer with other positions than the tokens, some of which are padding, by an UnsupportedLayerError."""
    if counted is not None and positions != counted.shape[1]:
        raise UnsupportedLayerError(
            f"layer {name!r} sees {positions} positions, but padding is known of {counted.shape[1]} tokens; allowed: "
            f"a position a token, or embeddings with padding_idx=None"
        )
