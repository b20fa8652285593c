"""LoRA adapters in the encoder of a user's folder."""

import threading
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from fedfisher_core.models.lora import AdaptedEncoder, Adapters
from fedfisher_core.models.spec import FOLDER, ModelSpec
from fedfisher_core.models.trunks.folder import FolderTrunk, folder_trunk, skeleton
from fedfisher_core.models.trunks.trunk import load_trunk


class AdaptedFolder(AdaptedEncoder):
    """A linear layer on the features of a folder's encoder, and LoRA adapters in it; clients train and send these."""

    def __init__(self, spec: ModelSpec, trunk: FolderTrunk) -> None:
        trunk.require(spec.inputs)
        base = trunk.name.removeprefix(FOLDER)
        super().__init__(
            spec,
            targets=trunk.targets,
            blocks=trunk.blocks,
            features=trunk.features,
            padding=trunk.padding,
            base=base,
        )
        self.trunk = trunk

    def encode(self, tokens: Tensor, adapters: Adapters) -> Tensor:
        """See the base class."""
        features: Tensor = _frozen(self.trunk, tokens.device)(tokens, adapters)
        return features


@dataclass(frozen=True)
class FolderFamily:
    """Builds networks with adapters in one folder's encoder.

    Args:
        digest: of its files, so that a changed folder is another family.
    """

    trunk: str
    digest: str

    def __call__(self, spec: ModelSpec) -> nn.Module:
        """Build the network."""
        return AdaptedFolder(spec, folder_trunk(self.trunk))


def folder_family(trunk: str) -> FolderFamily:
    """Find the family of a folder's encoder; errors as for `folder_trunk`."""
    return FolderFamily(trunk, folder_trunk(trunk).digest)


_LOADING = threading.Lock()
"""The library changes functions of torch while it loads a network, and each encoder is to be loaded once."""


def _frozen(trunk: FolderTrunk, device: torch.device) -> nn.Module:
    """The encoder that all networks of a process share; no network holds it, as no client sends it."""
    with _LOADING:
        return _loaded(trunk, device)


@lru_cache(maxsize=2)
def _loaded(trunk: FolderTrunk, device: torch.device) -> nn.Module:
    # What is made in inference mode can't be used in training.
    with torch.inference_mode(False), torch.no_grad():
        if device.type == "meta":
            return skeleton(trunk).eval().requires_grad_(False)
        return load_trunk(trunk).to(device)
