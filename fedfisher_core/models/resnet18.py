"""ResNet-18 without batch normalisation, as in the FedFisher paper."""

from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import require_images
from fedfisher_core.models.spec import ModelSpec, model


class _Block(nn.Module):
    """Two 3x3 convolutions and a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int, bias: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=bias)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=bias)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=bias) if changes else nn.Identity()
        )

    def forward(self, maps: Tensor) -> Tensor:
        return functional.relu(self.conv2(functional.relu(self.conv1(maps))) + self.shortcut(maps))


FILTERS = (64, 128, 256, 512)
"""Of the four groups of blocks."""


def residual_blocks(*, bias: bool) -> nn.Sequential:
    """Build four groups of two blocks; each group but the first halves the feature maps.

    Args:
        bias: whether its convolutions have a bias.

    Returns:
        The blocks, which read as many feature maps as the first group has filters.
    """
    blocks = []
    inputs = FILTERS[0]
    for outputs in FILTERS:
        stride = 1 if outputs == FILTERS[0] else 2
        blocks += [_Block(inputs, outputs, stride, bias), _Block(outputs, outputs, 1, bias)]
        inputs = outputs
    return nn.Sequential(*blocks)


def pooled_features(maps: Tensor) -> Tensor:
    """Average each feature map.

    Args:
        maps: shape (batch, filters, height, width).

    Returns:
        Shape (batch, filters).
    """
    return functional.adaptive_avg_pool2d(maps, 1).flatten(1)


@model("resnet18")
class ResNet18(nn.Module):
    """Four groups of two blocks with 64, 128, 256 and 512 filters, average pooling and one linear layer."""

    def __init__(self, spec: ModelSpec) -> None:
        if spec.widths:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; its skip connections tie them: allowed: none")
        images = require_images(spec.inputs, f"model {spec.name!r}")
        super().__init__()
        self.conv1 = nn.Conv2d(images.channels, FILTERS[0], kernel_size=3, padding=1, bias=spec.bias)
        self.blocks = residual_blocks(bias=spec.bias)
        self.linear = nn.Linear(FILTERS[-1], spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: shape (batch, channels, height, width).

        Returns:
            Shape (batch, classes).
        """
        return self.linear(pooled_features(self.blocks(functional.relu(self.conv1(inputs)))))
