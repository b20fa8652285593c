"""MobileNetV2 (Sandler et al. 2018), trained as a whole; `trunks/mobilenet_v2.py` has it frozen."""

import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import require_images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.installed import require_packages
from fedfisher_core.models.batch_norm import BatchNorm
from fedfisher_core.models.layers import Dropout
from fedfisher_core.models.spec import ModelSpec, model

_DROPPED = 0.2


@model("mobilenet_v2")
class MobileNetV2(nn.Module):
    """torchvision's network and names, so that its weights can be read; only the last layer may have a bias."""

    def __init__(self, spec: ModelSpec) -> None:
        if spec.widths:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; its skip connections tie them: allowed: none")
        images = require_images(spec.inputs, f"model {spec.name!r}")
        require_packages("torchvision", extra="benchmark", who=f"model {spec.name!r}")
        # Imported late, as it takes a second.
        from torchvision.models import mobilenet_v2

        super().__init__()
        self.features = mobilenet_v2(norm_layer=BatchNorm).features
        # Statistics read a layer's outputs, which must not be overwritten.
        for one in self.features.modules():
            if isinstance(one, nn.ReLU6):
                one.inplace = False
        stem, last = self.features[0][0], self.features[-1][0]
        if images.channels != stem.in_channels:
            self.features[0][0] = nn.Conv2d(images.channels, stem.out_channels, 3, stride=2, padding=1, bias=False)
        self.classifier = nn.Sequential(Dropout(_DROPPED), nn.Linear(last.out_channels, spec.classes, bias=spec.bias))

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of images of shape (batch, channels, height, width)."""
        # With channels last, a CPU takes half the time for depthwise convolutions.
        maps = self.features(inputs.contiguous(memory_format=torch.channels_last))
        return self.classifier(maps.mean((2, 3)))
