"""Pre-trained networks by name: their properties, their weights, and examples prepared for them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import fedfisher_core.models.trunks
from fedfisher_core.data.layouts import Layout, require_texts
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.installed import packaged_file
from fedfisher_core.engine.registry import Registry, import_submodules
from fedfisher_core.models.spec import FOLDER, is_adapted_folder, models
from fedfisher_core.models.trunks.reading import read_weights_file

SEPARATOR = "/"
"""Separates a trunk from the network on its features in `model.name`, such as mobilenet_v2/linear."""


@dataclass(frozen=True, kw_only=True)
class Pretrained(ABC):
    """A pre-trained network with frozen weights.

    Args:
        build: makes the network that maps examples to features, from weights by name. It raises RuntimeError if names
            or shapes do not fit.
        features: number of features of an example.
        file: of the weights, as `torch.save` writes them: relative to the package's folder, or absolute without a
            package.
        sha256: of that file, in hexadecimal digits.
        licence: of the weights.
        unused: how names in the file begin that belong to no part of the network.
        package: distribution that holds the file, by name and version; None for a separate file.
    """

    name: str
    build: "Callable[[Mapping[str, Tensor]], nn.Module]"
    features: int
    file: str
    sha256: str
    licence: str
    unused: tuple[str, ...] = ()
    package: tuple[str, str] | None = None

    @property
    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What decides its features of prepared examples, besides code, as JSON has it."""

    @property
    @abstractmethod
    def probe(self) -> Tensor:
        """One prepared example, to try the network."""


@dataclass(frozen=True, kw_only=True)
class Trunk(Pretrained):
    """A pre-trained network of images; `model.pretrained.weights` starts from its weights.

    Args:
        size: height and width in pixels of its input images, unless the settings say otherwise.
        mean: subtracted from pixels in [0, 1], one for each of three channels.
        std: divides the difference, likewise.
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def described(self) -> dict[str, Any]:
        """See the base class."""
        return {"name": self.name, "weights": self.sha256, "mean": self.mean, "std": self.std}

    @property
    def probe(self) -> Tensor:
        """Zeros."""
        # With channels last, a CPU takes half the time for depthwise convolutions.
        return torch.zeros(1, 3, self.size, self.size).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True, kw_only=True)
class TextTrunk(Pretrained):
    """A pre-trained network of texts.

    Args:
        vocabulary: number of tokens that it knows.
        positions: most tokens of a text.
        padding: the token of padding, which changes no feature.
        words: SHA-256 of the words with their tokens, as `Texts.words`; empty where it is not known.
    """

    vocabulary: int
    positions: int
    padding: int
    words: str = ""

    @property
    def described(self) -> dict[str, Any]:
        """See the base class."""
        return {"name": self.name, "weights": self.sha256}

    @property
    def probe(self) -> Tensor:
        """One token."""
        return torch.full((1, 1), (self.padding + 1) % self.vocabulary)

    def require(self, layout: Layout) -> None:
        """Refuse examples that it can't take, by an InputError."""
        who = f"trunk {self.name!r}"
        found = require_texts(layout, who)
        if (found.vocabulary, found.padding) != (self.vocabulary, self.padding):
            raise InputError(
                f"{who}: data.text.tokenizer={found.tokenizer} has {found.vocabulary} tokens, and padding is token "
                f"{found.padding}; allowed: {self.vocabulary} tokens and padding {self.padding}"
            )
        if self.words and found.words and found.words != self.words:
            raise InputError(
                f"{who}: data.text.tokenizer={found.tokenizer} has other words for its {found.vocabulary} tokens; "
                "allowed: the words that the network was trained with"
            )
        if found.length > self.positions:
            raise InputError(f"{who}: data.text.length={found.length}; allowed: up to {self.positions}, its positions")


def split_name(name: str) -> tuple[Pretrained | None, str]:
    """Split a model's name into a trunk, or None, and the name of the network; InputError for an unknown trunk.

    A network may have a name with a separator, such as minilm/lora, whose trunk is within it.
    """
    before, after = parts_of_name(name)
    if before is None or is_adapted_folder(name) or name in list(models):
        return None, name
    return trunks.get(before), after


def parts_of_name(name: str) -> tuple[str | None, str]:
    """Split a name such as mobilenet_v2/linear or folder:PATH/linear; None and the name where it has one part."""
    before, found, after = name.rpartition(SEPARATOR) if name.startswith(FOLDER) else name.partition(SEPARATOR)
    return (before, after) if found else (None, name)


class _Trunks(Registry[Pretrained]):
    """Pre-trained networks by name, and the encoders of folders by their path."""

    def get(self, name: str) -> Pretrained:
        """Look a name up, or read what a folder says of its encoder; errors as for `Registry.get`."""
        if not name.startswith(FOLDER):
            return super().get(name)
        # Imported late, because that module imports this one.
        trunk: Pretrained = import_module("fedfisher_core.models.trunks.folder").folder_trunk(name)
        return trunk


trunks: Registry[Pretrained] = _Trunks(
    noun="trunk", group="fedfisher.trunks", builtin=lambda: import_submodules(fedfisher_core.models.trunks)
)


def require_weights(trunk: Pretrained) -> Path:
    """Find the file of a trunk's weights; InputError if it is missing or has another digest."""
    path = _path(trunk)
    if not path.is_file():
        raise InputError(f"trunk {trunk.name!r}: there is no file {path} with its weights")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != trunk.sha256:
        raise InputError(f"trunk {trunk.name!r}: {path} has the SHA-256 {found}; allowed: {trunk.sha256}")
    return path


def load_trunk(trunk: Pretrained) -> nn.Module:
    """Read a trunk's weights.

    Returns:
        The network on the CPU, in evaluation mode; it maps tokens, or the result of `prepare`, to features, shape
        (batch, features).

    Raises:
        InputError: the weights are missing, have another digest, or do not fit the network; or the number of features
            is not the trunk's.
    """
    path = require_weights(trunk)
    weights = read_weights_file(path, f"trunk {trunk.name!r}: {path}")
    try:
        network = trunk.build(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"trunk {trunk.name!r}: the weights in {path} do not fit: {reason}") from error
    network = network.eval().requires_grad_(False)
    if isinstance(trunk, Trunk):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    made = tuple(network(trunk.probe).shape)
    if made != (1, trunk.features):
        raise InputError(f"trunk {trunk.name!r} makes features of shape {made}; allowed: {(1, trunk.features)}")
    return network


def prepare(trunk: Trunk, pixels: Tensor, size: int) -> Tensor:
    """Convert images to the form on which a trunk was trained.

    Args:
        pixels: uint8, shape (batch, channels, height, width); grey ones get three equal channels.
        size: height and width after bilinear interpolation.

    Returns:
        Float32, shape (batch, 3, size, size), with channels last in memory.
    """
    images = pixels.float().div_(255).expand(-1, 3, -1, -1)
    if images.shape[-2:] != (size, size):
        images = functional.interpolate(images, size=(size, size), mode="bilinear", antialias=True)
    mean, std = (torch.tensor(one, device=pixels.device).reshape(1, 3, 1, 1) for one in (trunk.mean, trunk.std))
    return ((images - mean) / std).contiguous(memory_format=torch.channels_last)


def _path(trunk: Pretrained) -> Path:
    if trunk.package is None:
        return Path(trunk.file)
    return packaged_file(trunk.file, trunk.package, who=f"trunk {trunk.name!r}")
