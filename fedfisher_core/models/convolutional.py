"""The convolutional networks of the FedFisher papers, of FedMA and of MA-Echo."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import require_images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.layers import Dropout, max_pool
from fedfisher_core.models.spec import ModelSpec, model


class _Convolutions(nn.Module):
    """Two 5x5 convolutions, each with 2x2 max pooling and ReLU; with padding, only the pooling reduces the size."""

    def __init__(self, spec: ModelSpec, filters: tuple[int, ...], *, padded: bool) -> None:
        super().__init__()
        images = require_images(spec.inputs, f"model {spec.name!r}")
        padding, least = (2, 4) if padded else (0, 16)
        if min(images.height, images.width) < least:
            raise InputError(
                f"model {spec.name!r} needs images of at least {least}x{least} pixels; they have "
                f"{images.height}x{images.width}"
            )
        cut = 4 - 2 * padding
        height, width = (((side - cut) // 2 - cut) // 2 for side in (images.height, images.width))
        self.features = filters[1] * height * width
        self.conv1 = nn.Conv2d(images.channels, filters[0], kernel_size=5, padding=padding, bias=spec.bias)
        self.conv2 = nn.Conv2d(filters[0], filters[1], kernel_size=5, padding=padding, bias=spec.bias)

    def convolve(self, inputs: Tensor) -> Tensor:
        """Compute features, shape (batch, features), of images of shape (batch, channels, height, width)."""
        # After pooling, ReLU has a quarter of the work, and the result is the same to the last bit.
        maps = functional.relu(max_pool(self.conv1(inputs)))
        return functional.relu(max_pool(self.conv2(maps))).flatten(1)


class _ThreeLayers(_Convolutions):
    def __init__(self, spec: ModelSpec, widths: tuple[int, int, int, int], *, padded: bool = False) -> None:
        *filters, first, second = spec.widths_or(widths)
        super().__init__(spec, tuple(filters), padded=padded)
        self.fc1 = nn.Linear(self.features, first, bias=spec.bias)
        self.fc2 = nn.Linear(first, second, bias=spec.bias)
        self.fc3 = nn.Linear(second, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of shape (batch, classes)."""
        hidden = functional.relu(self.fc1(self.convolve(inputs)))
        return self.fc3(functional.relu(self.fc2(hidden)))


class _OneLayer(_Convolutions):
    def __init__(self, spec: ModelSpec, widths: tuple[int, int]) -> None:
        super().__init__(spec, spec.widths_or(widths), padded=False)
        self.fc = nn.Linear(self.features, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits of shape (batch, classes)."""
        return self.fc(self.convolve(inputs))


@model("lenet")
def lenet(spec: ModelSpec) -> nn.Module:
    """Build LeNet: 6 and 16 filters, 120 and 84 hidden units."""
    return _ThreeLayers(spec, (6, 16, 120, 84))


@model("cnn")
def cnn(spec: ModelSpec) -> nn.Module:
    """Build FedMA's CNN: 32 and 64 filters, 512 and 128 hidden units."""
    return _ThreeLayers(spec, (32, 64, 512, 128))


@model("cnn_padded")
def cnn_padded(spec: ModelSpec) -> nn.Module:
    """Build FedMA's CNN with padded convolutions, for the workshop paper's compression ratios on CIFAR-10."""
    return _ThreeLayers(spec, (32, 64, 512, 128), padded=True)


@model("compact")
def compact(spec: ModelSpec) -> nn.Module:
    """Build a network that is small enough for full Fishers: 6 and 8 filters, no hidden units."""
    return _OneLayer(spec, (6, 8))


DROPPED = 0.2
"""Part of each feature map that is dropped before pooling, as in the authors' code."""


@model("ma_echo_cnn")
class MAEchoCNN(nn.Module):
    """Three padded 3x3 convolutions with 64, 128 and 256 filters, and 1000 and 500 hidden units."""

    def __init__(self, spec: ModelSpec) -> None:
        images = require_images(spec.inputs, f"model {spec.name!r}")
        height, width = images.height // 8, images.width // 8
        if min(height, width) < 1:
            raise InputError(
                f"model {spec.name!r} needs images of at least 8x8 pixels; they have {images.height}x{images.width}"
            )
        super().__init__()
        one, two, three, first, second = spec.widths_or((64, 128, 256, 1000, 500))
        self.conv1 = nn.Conv2d(images.channels, one, kernel_size=3, padding=1, bias=spec.bias)
        self.conv2 = nn.Conv2d(one, two, kernel_size=3, padding=1, bias=spec.bias)
        self.conv3 = nn.Conv2d(two, three, kernel_size=3, padding=1, bias=spec.bias)
        self.dropout = Dropout(DROPPED)
        self.fc1 = nn.Linear(three * height * width, first, bias=spec.bias)
        self.fc2 = nn.Linear(first, second, bias=spec.bias)
        self.fc3 = nn.Linear(second, spec.classes, bias=spec.bias)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw linear layers by Glorot's normal distribution, and all others as torch does by default."""
        for layer in self.children():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, generator=generator)
            elif isinstance(layer, nn.Conv2d):
                nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
                bound = layer.weight[0].numel() ** -0.5
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of images of shape (batch, channels, height, width)."""
        maps = inputs
        for convolution in (self.conv1, self.conv2, self.conv3):
            # Dropout comes before pooling, because it changes which number is the largest.
            maps = max_pool(self.dropout(functional.relu(convolution(maps))))
        hidden = functional.relu(self.fc1(maps.flatten(1)))
        return self.fc3(functional.relu(self.fc2(hidden)))
