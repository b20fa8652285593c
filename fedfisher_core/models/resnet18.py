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


@model("resnet18")
class ResNet18(nn.Module):
    """Four groups of two blocks with 64, 128, 256 and 512 filters, average pooling and one linear layer."""

    def __init__(self, spec: ModelSpec) -> None:
        if spec.widths:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; its skip connections tie them: allowed: none")
        images = require_images(spec.inputs, f"model {spec.name!r}")
        super().__init__()
        self.conv1 = nn.Conv2d(images.channels, 64, kernel_size=3, padding=1, bias=spec.bias)
        blocks = []
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [_Block(inputs, outputs, stride, spec.bias), _Block(outputs, outputs, 1, spec.bias)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(512, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: shape (batch, channels, height, width).

        Returns:
            Shape (batch, classes).
        """
        maps = self.blocks(functional.relu(self.conv1(inputs)))
        return self.linear(functional.adaptive_avg_pool2d(maps, 1).flatten(1))
