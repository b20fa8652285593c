"""A trunk that is small enough for tests: one convolution, and the mean of each of its maps."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfisher_core.models.trunks.trunk import Trunk, trunks

FEATURES = 7


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, FEATURES, kernel_size=3)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images).relu().mean((2, 3))


def build(weights: Mapping[str, Tensor]) -> nn.Module:
    network = Pooled()
    network.load_state_dict(weights)
    return network


def weights(*, features: int = FEATURES, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "conv.weight": torch.randn(features, 3, 3, 3, generator=generator),
        "conv.bias": torch.zeros(features),
    }


def register(folder: Path, content: Mapping[str, Tensor] | None = None, *, name: str = "tiny_trunk") -> Trunk:
    """Write weights, and register a trunk that has them."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.pth"
    torch.save(dict(content or weights()), file)
    trunk = Trunk(
        name=name,
        build=build,
        features=FEATURES,
        size=8,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.3, 0.4),
        file=str(file),
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        licence="none",
    )
    trunks.replace(name, trunk)
    return trunk
