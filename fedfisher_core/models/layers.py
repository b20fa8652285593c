"""The project's own layers: dropout that draws from a given generator, a name for padding, and fast max pooling."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Module):
    """In training, sets numbers to 0 at random and scales the others up to keep the mean; in evaluation, does nothing.

    `torch.nn.Dropout` draws from the process's generator, which all clients of a process would share.

    Args:
        probability: of each number to become 0, at least 0 and below 1.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self._generator: torch.Generator | None = None

    def draw_from(self, generator: torch.Generator) -> None:
        """Set the generator, which is on the CPU so that all devices draw the same numbers."""
        self._generator = generator

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop some of the inputs; in training, RuntimeError without a generator."""
        if not self.training:
            return inputs
        if self._generator is None:
            raise RuntimeError("dropout in training has no generator; `draw_from` must give it one first")
        kept = torch.empty(inputs.shape, dtype=inputs.dtype).bernoulli_(1 - self.probability, generator=self._generator)
        return inputs * kept.div_(1 - self.probability).to(inputs.device)


class Padding(nn.Module):
    """Passes tokens on, and names their padding, as an embedding would that is in no network because it is frozen."""

    def __init__(self, padding_idx: int) -> None:
        super().__init__()
        self.padding_idx = padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        """Do nothing."""
        return tokens


def begin_training(network: nn.Module, generator: torch.Generator) -> None:
    """Put a network in training mode, with a CPU generator for its dropout, if it has any."""
    network.train()
    for module in network.modules():
        if isinstance(module, Dropout):
            module.draw_from(generator)


def max_pool(maps: Tensor) -> Tensor:
    """Take the largest of every 2x2 pixels of maps (batch, channels, height, width), without a last odd row or column.

    Output and gradient are those of `torch.nn.functional.max_pool2d` to the last bit: of equal pixels, the first in the
    order of rows gets the gradient.
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
        # Made from `upper`, which has the batch dimension if gradients are batched.
        tall = upper.new_empty(wide.shape)
        tall[..., 0::2, :], tall[..., 1::2, :] = upper, gradient - upper
        first = tall * (left >= right)
        whole = first.new_empty(maps.shape)
        whole[..., 0::2], whole[..., 1::2] = first, tall - first
        return whole
