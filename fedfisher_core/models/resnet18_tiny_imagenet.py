"""The ResNet-18 that the FedFisher paper fine-tunes, of the shape of its weights trained on Tiny-ImageNet."""

from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import require_images
from fedfisher_core.models.resnet18 import FILTERS, pooled_features, residual_groups
from fedfisher_core.models.spec import ModelSpec, model


@model("resnet18_tiny_imagenet")
class ResNet18TinyImageNet(nn.Module):
    """A 7x7 stem, the blocks of `resnet18`, and three linear layers with nothing between: 1000, 200, classes.

    The layer of 200 is the head of the authors' pre-training, whose 200 classes the last layer reads.
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
        # Named as in the authors' code, whose weights can be read: model.pretrained with drawn=final.weight.
        self.layer1, self.layer2, self.layer3, self.layer4 = residual_groups(bias=spec.bias)
        self.fc = nn.Linear(FILTERS[-1], 1000, bias=spec.bias)
        self.linear = nn.Linear(1000, 200, bias=spec.bias)
        self.final = nn.Linear(200, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: shape (batch, channels, height, width).

        Returns:
            Shape (batch, classes).
        """
        groups = (self.layer1, self.layer2, self.layer3, self.layer4)
        features = pooled_features(functional.relu(self.conv1(inputs)), groups)
        return self.final(self.linear(self.fc(features)))
