"""What is known of a pre-trained network before its weights are read, and the registry of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fedfisher_core.trunks
from fedfisher_core.registry import Registry, import_submodules

if TYPE_CHECKING:
    from torch import Tensor, nn

SEPARATOR = "/"
"""Stands between a trunk and the network on its features in `model.name`, such as mobilenet_v2/linear."""


@dataclass(frozen=True)
class Trunk:
    """A pre-trained network whose weights stay as they are; `model.pretrained.weights` starts from them.

    Args:
        name: its name in the settings.
        build: makes the network that maps images to features, from weights by name. It raises RuntimeError where names
            or shapes are others.
        features: how many it makes of an image.
        size: height and width in pixels of the images that it is given, unless the settings say otherwise.
        mean: subtracted from pixels in [0, 1], one for each of three channels.
        std: by which the difference is divided, likewise.
        file: of the weights, as `torch.save` writes them: below the package's folder, or absolute without one.
        sha256: of that file, in hexadecimal digits.
        licence: of the weights.
        package: distribution that holds the file, by name and version; None for a file of its own.
    """

    name: str
    build: "Callable[[Mapping[str, Tensor]], nn.Module]"
    features: int
    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    file: str
    sha256: str
    licence: str
    package: tuple[str, str] | None = None


def split_name(name: str) -> tuple[Trunk | None, str]:
    """Take a model's name apart.

    Args:
        name: of a network, or of a trunk and the network on its features.

    Returns:
        The trunk, or None; and the network's own name.

    Raises:
        InputError: no trunk has this name.
    """
    before, found, after = name.partition(SEPARATOR)
    return (trunks.get(before), after) if found else (None, name)


trunks: Registry[Trunk] = Registry(
    noun="trunk", group="fedfisher.trunks", builtin=lambda: import_submodules(fedfisher_core.trunks)
)
