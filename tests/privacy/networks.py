"""Tiny networks with data, and an example that no clip has seen the like of."""

import torch
from torch import Tensor, nn

from tests.fisher.reference import convolutional, linear

NETWORKS = {
    "linear, no bias": lambda: linear(False),
    "linear, bias": lambda: linear(True),
    "convolutional, no bias": lambda: convolutional(False, padding=(1, 2), stride=(2, 1)),
    "convolutional, bias": lambda: convolutional(True),
}


def make(name: str, examples: int, *, seed: int = 3) -> tuple[nn.Module, Tensor, Tensor]:
    """A network, inputs for it, and labels."""
    torch.manual_seed(seed)
    network = NETWORKS[name]()
    shape = (4,) if name.startswith("linear") else (2, 7, 6)
    return network, torch.randn(examples, *shape), torch.randint(3, (examples,))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
