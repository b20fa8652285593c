"""The clients' networks as one teacher."""

from collections.abc import Sequence

from torch import Tensor, nn


class Teacher(nn.Module):
    """The weighted sum of several networks' outputs before the softmax.

    Args:
        networks: in evaluation mode.
        weights: one factor a network.
    """

    def __init__(self, networks: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.weights = tuple(weights)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: shape (batch, channels, height, width).

        Returns:
            Shape (batch, classes).
        """
        first, *others = (weight * one(inputs) for weight, one in zip(self.weights, self.networks, strict=True))
        return sum(others, first)
