"""Batch normalisation whose running statistics are weights like others: clients send them, and servers merge them."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional


class BatchNorm(nn.Module):
    """Normalises each channel by its mean and variance: those of a batch in training, the running ones in evaluation.

    `torch.nn.BatchNorm2d` keeps running statistics in buffers, of which a method that merges parameters knows nothing,
    and a merged variance may be negative. Here they are parameters without a gradient in training, with the logarithm
    in place of the variance: y = weight (x - mean) exp(-log_variance / 2) + bias is a network for whatever numbers a
    method makes of the four.

    Args:
        channels: size of the inputs' second dimension.
        eps: added to variances.
        momentum: the part of a batch's statistics in the running ones after it.
    """

    def __init__(self, channels: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        self.mean = nn.Parameter(torch.empty(channels), requires_grad=False)
        self.log_variance = nn.Parameter(torch.empty(channels), requires_grad=False)
        self.initialise(torch.Generator())

    @property
    def variance(self) -> Tensor:
        """The running variance of each channel, not negative."""
        return (self.log_variance.detach().exp() - self.eps).clamp(min=0)

    def initialise(self, generator: torch.Generator) -> None:
        """Begin with the identity, as torch does; nothing is drawn."""
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.zero_()
            self.mean.zero_()
            self.log_variance.fill_(math.log1p(self.eps))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise inputs of shape (batch, channels, ...).

        A batch with one number a channel has no variance, and takes the running statistics in training as well.
        """
        if self.training and inputs.numel() > inputs.shape[1]:
            return self._by_batch(inputs)
        scale = self.weight * (-self.log_variance / 2).exp()
        shape = (-1, *[1] * (inputs.ndim - 2))
        return torch.addcmul((self.bias - self.mean * scale).view(shape), inputs, scale.view(shape))

    def _by_batch(self, inputs: Tensor) -> Tensor:
        variance = self.variance
        normalised = functional.batch_norm(
            inputs, self.mean, variance, self.weight, self.bias, training=True, momentum=self.momentum, eps=self.eps
        )
        self.log_variance.copy_((variance + self.eps).log())
        return normalised


def read_running_statistics(network: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take what `torch.nn.BatchNorm2d` keeps in buffers for the parameters of `BatchNorm`.

    Args:
        network: with any number of `BatchNorm`.
        tensors: by name, with or without such buffers.

    Returns:
        The tensors, a `running_mean` of such a layer as its `mean`, a `running_var` as its `log_variance`, and without
        its `num_batches_tracked`.
    """
    read = dict(tensors)
    for name, layer in network.named_modules():
        if isinstance(layer, BatchNorm) and f"{name}.running_mean" in read and f"{name}.running_var" in read:
            read.pop(f"{name}.num_batches_tracked", None)
            read[f"{name}.mean"] = read.pop(f"{name}.running_mean")
            read[f"{name}.log_variance"] = (read.pop(f"{name}.running_var") + layer.eps).log()
    return read
