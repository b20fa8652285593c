"""Predictions of networks, a bounded number of images at a time."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.tensors import Examples

# The maps of 1,000 images are so large that glibc maps memory anew for each of them, page by page, and a small
# convolutional network takes up to twice as long on a CPU.
_BATCH = 100


@torch.no_grad()
def logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """Compute the outputs of a network.

    Args:
        network: in evaluation mode.
        inputs: shape (examples, ...).

    Returns:
        Shape (examples, classes).
    """
    return torch.cat([network(batch) for batch in inputs.split(_BATCH)])


def accuracy(network: nn.Module, examples: Examples) -> float:
    """Measure how often the largest output is right.

    Args:
        network: in evaluation mode.
        examples: at least one.

    Returns:
        A fraction.
    """
    return float((logits(network, examples.inputs).argmax(1) == examples.labels).double().mean())


def mean_loss(network: nn.Module, examples: Examples) -> float:
    """Measure the mean cross-entropy.

    Args:
        network: in evaluation mode.
        examples: at least one.

    Returns:
        In nats.
    """
    return float(functional.cross_entropy(logits(network, examples.inputs), examples.labels))
