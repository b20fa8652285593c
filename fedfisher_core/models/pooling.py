"""Max pooling over 2x2 pixels by whole maps at once; torch's own goes over single pixels on the CPU."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def max_pool(maps: Tensor) -> Tensor:
    """Take the largest of every 2x2 pixels; a last odd row or column is left out.

    Output and gradient are those of `torch.nn.functional.max_pool2d` to the last bit: of equal pixels, the first in the
    order of rows gets the gradient.

    Args:
        maps: shape (batch, channels, height, width).

    Returns:
        Shape (batch, channels, height // 2, width // 2).
    """
    if maps.device.type != "cpu":
        return functional.max_pool2d(maps, 2)
    height, width = maps.shape[-2] // 2 * 2, maps.shape[-1] // 2 * 2
    pooled: Tensor = _MaxPool.apply(maps[..., :height, :width])
    return pooled


class _MaxPool(torch.autograd.Function):
    """Pairs of columns first, then pairs of rows, so that of equal pixels the upper row's comes first."""

    generate_vmap_rule = True

    @staticmethod
    def forward(maps: Tensor) -> Tensor:
        wide = torch.maximum(maps[..., 0::2], maps[..., 1::2])
        return torch.maximum(wide[..., 0::2, :], wide[..., 1::2, :])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (maps,) = ctx.saved_tensors
        left, right = maps[..., 0::2], maps[..., 1::2]
        wide = torch.maximum(left, right)
        upper = gradient * (wide[..., 0::2, :] >= wide[..., 1::2, :])
        # Of `upper`, which has a batch of gradients wherever there is one.
        tall = upper.new_empty(wide.shape)
        tall[..., 0::2, :], tall[..., 1::2, :] = upper, gradient - upper
        first = tall * (left >= right)
        whole = first.new_empty(maps.shape)
        whole[..., 0::2], whole[..., 1::2] = first, tall - first
        return whole
