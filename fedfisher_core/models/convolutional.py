"""The two small convolutional networks of the FedFisher paper, LeNet and FedMA's CNN, and one smaller than both."""

from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import InputError
from fedfisher_core.models.spec import ModelSpec, model


def _side(spec: ModelSpec) -> int:
    """Height and width of the maps that two convolutions and poolings leave."""
    side = ((spec.size - 4) // 2 - 4) // 2
    if side < 1:
        raise InputError(f"model {spec.name!r} needs images of at least 16x16 pixels; they have {spec.size}")
    return side


class _TwoConvolutions(nn.Module):
    """Two 5x5 convolutions, each with ReLU and 2x2 max pooling, then three linear layers."""

    def __init__(self, spec: ModelSpec, *, filters: tuple[int, int], hidden: tuple[int, int]) -> None:
        super().__init__()
        side = _side(spec)
        self.conv1 = nn.Conv2d(spec.channels, filters[0], kernel_size=5, bias=spec.bias)
        self.conv2 = nn.Conv2d(filters[0], filters[1], kernel_size=5, bias=spec.bias)
        self.fc1 = nn.Linear(filters[1] * side**2, hidden[0], bias=spec.bias)
        self.fc2 = nn.Linear(hidden[0], hidden[1], bias=spec.bias)
        self.fc3 = nn.Linear(hidden[1], spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: shape (batch, channels, size, size).

        Returns:
            Shape (batch, classes).
        """
        maps = functional.max_pool2d(functional.relu(self.conv1(inputs)), 2)
        maps = functional.max_pool2d(functional.relu(self.conv2(maps)), 2)
        hidden = functional.relu(self.fc1(maps.flatten(1)))
        hidden = functional.relu(self.fc2(hidden))
        return self.fc3(hidden)


@model("lenet")
def lenet(spec: ModelSpec) -> nn.Module:
    """Build LeNet: 6 and 16 filters, 120 and 84 hidden units."""
    return _TwoConvolutions(spec, filters=(6, 16), hidden=(120, 84))


@model("cnn")
def cnn(spec: ModelSpec) -> nn.Module:
    """Build FedMA's CNN: 32 and 64 filters, 512 and 128 hidden units."""
    return _TwoConvolutions(spec, filters=(32, 64), hidden=(512, 128))


class _Compact(nn.Module):
    """Two 5x5 convolutions, each with ReLU and 2x2 max pooling, then one linear layer."""

    def __init__(self, spec: ModelSpec, *, filters: tuple[int, int]) -> None:
        super().__init__()
        side = _side(spec)
        self.conv1 = nn.Conv2d(spec.channels, filters[0], kernel_size=5, bias=spec.bias)
        self.conv2 = nn.Conv2d(filters[0], filters[1], kernel_size=5, bias=spec.bias)
        self.fc = nn.Linear(filters[1] * side**2, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: shape (batch, channels, size, size).

        Returns:
            Shape (batch, classes).
        """
        maps = functional.max_pool2d(functional.relu(self.conv1(inputs)), 2)
        maps = functional.max_pool2d(functional.relu(self.conv2(maps)), 2)
        return self.fc(maps.flatten(1))


@model("compact")
def compact(spec: ModelSpec) -> nn.Module:
    """Build a network that is small enough for full Fishers: 6 and 8 filters, no hidden units."""
    return _Compact(spec, filters=(6, 8))
