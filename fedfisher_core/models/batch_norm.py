"""Batch normalisation with running statistics as ordinary weights, and how these are estimated anew."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.models.spec import Parameters, parameters_of


class BatchNorm(nn.Module):
    """Normalises each channel by its mean and variance: those of a batch in training, the running ones in evaluation.

    `torch.nn.BatchNorm2d` keeps running statistics in buffers, which methods that merge parameters do not see, and a
    merged variance may be negative. Here they are parameters, without a gradient in training, and the variance is
    stored as its logarithm. So y = weight (x - mean) exp(-log_variance / 2) + bias is a network for any values of the
    four.

    Args:
        channels: size of the inputs' second dimension.
        eps: added to variances.
        momentum: weight of a batch's statistics in the running ones.
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
        """Start with the identity, as torch does; nothing is drawn."""
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.zero_()
            self.mean.zero_()
            self.log_variance.fill_(math.log1p(self.eps))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise inputs of shape (batch, channels, ...).

        A batch with one number a channel has no variance, so it is normalised by the running statistics in training
        too.
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
    """Convert the buffers of `torch.nn.BatchNorm2d` to the parameters of a network's `BatchNorm` layers.

    Args:
        tensors: by name, with or without such buffers.

    Returns:
        The tensors, with a `running_mean` of such a layer as its `mean`, and a `running_var` as its `log_variance`. Its
        `num_batches_tracked` is left out.
    """
    read = dict(tensors)
    for name, layer in network.named_modules():
        if isinstance(layer, BatchNorm) and f"{name}.running_mean" in read and f"{name}.running_var" in read:
            read.pop(f"{name}.num_batches_tracked", None)
            read[f"{name}.mean"] = read.pop(f"{name}.running_mean")
            read[f"{name}.log_variance"] = (read.pop(f"{name}.running_var") + layer.eps).log()
    return read


_BATCH = 1000


def batch_norms(network: nn.Module) -> Mapping[str, BatchNorm]:
    """List a network's batch normalisations by name."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, BatchNorm)}


@torch.no_grad()
def estimate(network: nn.Module, inputs: Tensor) -> Parameters:
    """Set the running statistics to those of given inputs, layer after layer, and return the network's parameters.

    Beyond 1,000 inputs they are means over batches of one size, as in `torch.optim.swa_utils.update_bn`.

    Args:
        network: in evaluation mode; changed in place.
        inputs: at least one, shape (examples, ...).
    """
    norms = batch_norms(network)
    momenta = {name: norm.momentum for name, norm in norms.items()}
    for number, batch in enumerate(inputs.tensor_split(math.ceil(len(inputs) / _BATCH)), start=1):
        for norm in norms.values():
            norm.train()
            norm.momentum = 1 / number
        network(batch)
    for name, norm in norms.items():
        norm.eval()
        norm.momentum = momenta[name]
    return parameters_of(network)
