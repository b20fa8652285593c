"""A tiny network with batch normalisation that has seen images, as users may bring their own."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.models.batch_norm import BatchNorm

CLASSES = 3


class Normed(nn.Module):
    """Two convolutions, each with batch normalisation, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, kernel_size=3)
        self.first_norm = BatchNorm(3)
        self.second = nn.Conv2d(3, 2, kernel_size=3)
        self.second_norm = BatchNorm(2)
        self.head = nn.Linear(2, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(self.first_norm(self.first(inputs)))
        return self.head(self.second_norm(self.second(maps)).amax((2, 3)))


def normed(seed: int) -> Normed:
    """Draw the weights, running statistics among them."""
    generator = torch.Generator().manual_seed(seed)
    network = Normed()
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return network.eval()
