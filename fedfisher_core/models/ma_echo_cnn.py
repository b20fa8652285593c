"""The convolutional network of MA-Echo: three convolutions with dropout, three linear layers (Su et al. 2022)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import require_images
from fedfisher_core.models.dropout import Dropout
from fedfisher_core.models.pooling import max_pool
from fedfisher_core.models.spec import ModelSpec, model

DROPPED = 0.2
"""Share of each feature map that is dropped before it is pooled, as in the authors' code."""


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
        """See `Initialising`: linear layers by Glorot's normal distribution, all else as torch does by default."""
        for layer in self.children():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, generator=generator)
            elif isinstance(layer, nn.Conv2d):
                nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
                bound = layer.weight[0].numel() ** -0.5
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: shape (batch, channels, height, width).

        Returns:
            Shape (batch, classes).
        """
        maps = inputs
        for convolution in (self.conv1, self.conv2, self.conv3):
            # Before the pooling, as the largest number that is kept depends on it.
            maps = max_pool(self.dropout(functional.relu(convolution(maps))))
        hidden = functional.relu(self.fc1(maps.flatten(1)))
        return self.fc3(functional.relu(self.fc2(hidden)))
