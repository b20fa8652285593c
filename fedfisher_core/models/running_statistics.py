"""Running statistics of batch normalisation, estimated anew for a network whose other weights were merged."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.spec import Parameters, parameters_of

_BATCH = 1000


def batch_norms(network: nn.Module) -> Mapping[str, BatchNorm]:
    """List a network's batch normalisations by name."""
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, BatchNorm)}


@torch.no_grad()
def estimate(network: nn.Module, inputs: Tensor) -> Parameters:
    """Set the running statistics to those of given inputs, each layer's after the new ones of the layers before it.

    Beyond 1,000 inputs they are means over batches of one size, as `torch.optim.swa_utils.update_bn` has them.

    Args:
        network: in evaluation mode; changed in place.
        inputs: shape (examples, ...), at least one example.

    Returns:
        The network's parameters.
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
