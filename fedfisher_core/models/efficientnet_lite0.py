"""EfficientNet-Lite0 (EfficientNet without squeeze-and-excitation, with ReLU6; Tan and Le 2019), trained as a whole."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import require_images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.layers import Dropout
from fedfisher_core.models.spec import ModelSpec, model

EPS = 1e-3
"""Added to variances."""
_MOMENTUM = 0.01
_DROPPED = 0.2
_STEM, _LAST = 32, 1280
# Each stage has a kernel, the stride of its first block, an expansion, channels after it, and a number of blocks.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)

Normalisation = Callable[[int], nn.Module]
"""Makes a layer for a number of channels."""


class SamePadding(nn.Module):
    """Zeros around images, so that a convolution makes ceil(size / stride) rows; an odd one is added at the far side.

    It is TensorFlow's "SAME", with which the weights were trained. The convolution itself does not pad.
    """

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """Pad inputs of shape (batch, channels, height, width)."""
        (top, bottom), (left, right) = (self._sides(size) for size in inputs.shape[-2:])
        return functional.pad(inputs, (left, right, top, bottom))

    def _sides(self, size: int) -> tuple[int, int]:
        total = max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2


class Block(nn.Module):
    """Expands channels, filters each channel, and reduces them; a block that keeps the shape adds its inputs.

    Args:
        kernel: size of the filters of single channels.
        stride: of these filters.
        expansion: factor of the channels inside.
        normalisation: makes the layer after each convolution.
    """

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int, normalisation: Normalisation
    ) -> None:
        super().__init__()
        inside = inputs * expansion
        self.widens, self.adds = expansion > 1, stride == 1 and inputs == outputs
        if self.widens:
            self._expand_conv = nn.Conv2d(inputs, inside, 1, bias=False)
            self._bn0 = normalisation(inside)
        self.padding = SamePadding(kernel, stride)
        self._depthwise_conv = nn.Conv2d(inside, inside, kernel, stride=stride, groups=inside, bias=False)
        self._bn1 = normalisation(inside)
        self._project_conv = nn.Conv2d(inside, outputs, 1, bias=False)
        self._bn2 = normalisation(outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs of shape (batch, channels, height, width)."""
        wide = functional.relu6(self._bn0(self._expand_conv(inputs))) if self.widens else inputs
        filtered = functional.relu6(self._bn1(self._depthwise_conv(self.padding(wide))))
        narrow: Tensor = self._bn2(self._project_conv(filtered))
        return narrow + inputs if self.adds else narrow


class EfficientNetLite0(nn.Module):
    """The network, with the names of the weights that `trunks/efficientnet_lite0.py` reads.

    Its authors leave out random blocks in training; this network does not. Only the last layer may have a bias.
    """

    def __init__(self, channels: int, classes: int, *, bias: bool, normalisation: Normalisation) -> None:
        super().__init__()
        self.padding = SamePadding(3, 2)
        self._conv_stem = nn.Conv2d(channels, _STEM, 3, stride=2, bias=False)
        self._bn0 = normalisation(_STEM)
        blocks, width = [], _STEM
        for kernel, first, expansion, outputs, count in _STAGES:
            for stride in (first, *[1] * (count - 1)):
                blocks.append(
                    Block(
                        width, outputs, kernel=kernel, stride=stride, expansion=expansion, normalisation=normalisation
                    )
                )
                width = outputs
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = nn.Conv2d(width, _LAST, 1, bias=False)
        self._bn1 = normalisation(_LAST)
        self.dropout = Dropout(_DROPPED)
        self._fc = nn.Linear(_LAST, classes, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of images of shape (batch, channels, height, width)."""
        # With channels last, a CPU takes half the time for depthwise convolutions.
        images = self.padding(inputs.contiguous(memory_format=torch.channels_last))
        maps = self._blocks(functional.relu6(self._bn0(self._conv_stem(images))))
        pooled = functional.relu6(self._bn1(self._conv_head(maps))).mean((2, 3))
        return self._fc(self.dropout(pooled))


@model("efficientnet_lite0")
def efficientnet_lite0(spec: ModelSpec) -> nn.Module:
    """EfficientNet-Lite0 of Tan and Le (2019), with batch normalisation; only the last layer may have a bias."""
    if spec.widths:
        raise InputError(f"model {spec.name!r}: widths={spec.widths}; its skip connections tie them: allowed: none")
    images = require_images(spec.inputs, f"model {spec.name!r}")
    normalisation = partial(BatchNorm, eps=EPS, momentum=_MOMENTUM)
    return EfficientNetLite0(images.channels, spec.classes, bias=spec.bias, normalisation=normalisation)
