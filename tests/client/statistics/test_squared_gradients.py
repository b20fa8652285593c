import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.squared_gradients import sum_squared_gradients
from fedfisher_core.data.tensors import Examples


class Spare(nn.Module):
    """A network with a layer that its outputs do not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.spare = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs)


def test_a_weight_that_the_loss_does_not_reach_has_zeros() -> None:
    network = Spare()
    examples = Examples(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3)
    found = sum_squared_gradients(network, examples, torch.arange(6).split(2), functional.cross_entropy)
    assert not found["spare.weight"].any()
    assert found["head.weight"].any()
