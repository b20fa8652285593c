"""ResNet-18: without batch normalisation as in the FedFisher paper, with it, and for Tiny-ImageNet's weights."""

from collections.abc import Callable, Iterable, Iterator

from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import require_images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.spec import ModelSpec, model

Normalise = Callable[[int], nn.Module]
"""Makes the layer after a convolution with that many filters."""


def _nothing(filters: int) -> nn.Module:
    return nn.Identity()


class _Block(nn.Module):
    """Two 3x3 convolutions and a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int, bias: bool, normalise: Normalise) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=bias)
        self.norm1 = normalise(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=bias)
        self.norm2 = normalise(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=bias) if changes else nn.Identity()
        )
        self.norm3 = normalise(outputs) if changes else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        hidden = functional.relu(self.norm1(self.conv1(maps)))
        return functional.relu(self.norm2(self.conv2(hidden)) + self.norm3(self.shortcut(maps)))


FILTERS = (64, 128, 256, 512)
"""Number of filters in each of the four groups of blocks."""


def residual_groups(*, bias: bool, normalise: Normalise = _nothing) -> Iterator[nn.Sequential]:
    """Build four groups of two blocks; each group but the first halves the feature maps.

    Args:
        bias: whether convolutions have a bias.
        normalise: makes the layer after each convolution.

    Yields:
        The groups. The first reads as many feature maps as it has filters.
    """
    inputs = FILTERS[0]
    for outputs in FILTERS:
        stride = 1 if outputs == FILTERS[0] else 2
        yield nn.Sequential(
            _Block(inputs, outputs, stride, bias, normalise), _Block(outputs, outputs, 1, bias, normalise)
        )
        inputs = outputs


def pooled_features(maps: Tensor, groups: Iterable[nn.Module]) -> Tensor:
    """Pass feature maps through groups of blocks, and average each resulting map, shape (batch, last filters).

    Args:
        maps: shape (batch, filters, height, width).
    """
    for group in groups:
        maps = group(maps)
    return maps.mean((2, 3))


@model("resnet18")
class ResNet18(nn.Module):
    """Four groups of two blocks with 64, 128, 256 and 512 filters, average pooling and one linear layer."""

    normalise: Normalise = staticmethod(_nothing)

    def __init__(self, spec: ModelSpec) -> None:
        if spec.widths:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; its skip connections tie them: allowed: none")
        images = require_images(spec.inputs, f"model {spec.name!r}")
        super().__init__()
        self.conv1 = nn.Conv2d(images.channels, FILTERS[0], kernel_size=3, padding=1, bias=spec.bias)
        self.norm1 = self.normalise(FILTERS[0])
        # Named as in the authors' code and in torchvision, so that their weights can be read.
        self.layer1, self.layer2, self.layer3, self.layer4 = residual_groups(bias=spec.bias, normalise=self.normalise)
        self.linear = nn.Linear(FILTERS[-1], spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of images of shape (batch, channels, height, width)."""
        groups = (self.layer1, self.layer2, self.layer3, self.layer4)
        return self.linear(pooled_features(functional.relu(self.norm1(self.conv1(inputs))), groups))


@model("resnet18_batch_norm")
class ResNet18BatchNorm(ResNet18):
    """ResNet-18 with batch normalisation after every convolution, as He et al. (2016) have it for small images."""

    normalise: Normalise = BatchNorm


@model("resnet18_tiny_imagenet")
class ResNet18TinyImageNet(nn.Module):
    """A 7x7 stem, the blocks of `resnet18`, and three linear layers with nothing between: 1000, 200, classes.

    The layer of 200 is the head of the authors' pre-training; the last layer reads its 200 classes.
    """

    def __init__(self, spec: ModelSpec) -> None:
        if spec.widths:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; its skip connections tie them: allowed: none")
        images = require_images(spec.inputs, f"model {spec.name!r}")
        if min(images.height, images.width) < 5:
            raise InputError(
                f"model {spec.name!r} needs images of at least 5x5 pixels; they have {images.height}x{images.width}"
            )
        super().__init__()
        self.conv1 = nn.Conv2d(images.channels, FILTERS[0], kernel_size=7, padding=1, bias=spec.bias)
        # Named as in the authors' code, so that its weights can be read: model.pretrained with drawn=final.weight.
        self.layer1, self.layer2, self.layer3, self.layer4 = residual_groups(bias=spec.bias)
        self.fc = nn.Linear(FILTERS[-1], 1000, bias=spec.bias)
        self.linear = nn.Linear(1000, 200, bias=spec.bias)
        self.final = nn.Linear(200, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of images of shape (batch, channels, height, width)."""
        groups = (self.layer1, self.layer2, self.layer3, self.layer4)
        features = pooled_features(functional.relu(self.conv1(inputs)), groups)
        return self.final(self.linear(self.fc(features)))
