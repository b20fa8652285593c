"""Features of all images of a data set, by a frozen trunk."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedfisher_core.errors import InputError
from fedfisher_core.federation.data import FEATURES, INFO, load_data
from fedfisher_core.federation.inputs import DataInputs
from fedfisher_core.finite import is_finite
from fedfisher_core.jobs import Job, digests_of
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document
from fedfisher_core.trunks.trunk import Trunk, trunks
from fedfisher_core.trunks.weights import load_trunk, prepare

BATCH_SIZE = 32
"""Images that a trunk looks at together."""


@dataclass(frozen=True)
class ExtractFeatures(Job[DataInputs[Artifact]]):
    """Look at each image once, without augmentation; what is made takes the place of the decoded data set.

    Args:
        trunk: its name.
        image_size: height and width that images are brought to for it.
    """

    trunk: str
    image_size: int

    def step(self, inputs: DataInputs[Artifact]) -> Step:
        """See `Job.step`; federations that differ in what stands on the features share it."""
        trunk = trunks.get(self.trunk)
        return Step(
            kind="features",
            code=source_digest(type(self), trunk.build),
            settings={
                "trunk": {"name": trunk.name, "weights": trunk.sha256, "mean": trunk.mean, "std": trunk.std},
                "size": self.image_size,
                **self.numerics.described(),
            },
            inputs=digests_of(inputs),
        )

    def compute(self, inputs: DataInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the trunk's weights can't be read, or its features are not finite.
        """
        trunk, dataset = trunks.get(self.trunk), load_data(inputs.data)
        device = torch.device(self.numerics.device)
        network = load_trunk(trunk).to(device)
        made = {
            f"{part}.safetensors": {
                **{name: tensor for name, tensor in vars(split).items() if tensor is not None},
                "inputs": features_of(network, trunk, split.inputs, image_size=self.image_size, device=device),
            }
            for part, split in (("train", dataset.train), ("test", dataset.test))
        }
        info: dict[str, Any] = read_document(inputs.data, INFO)
        return Content(tensors=made, documents={INFO: info | {FEATURES: trunk.features}})


def features_of(network: nn.Module, trunk: Trunk, pixels: Tensor, *, image_size: int, device: torch.device) -> Tensor:
    """Compute the features of images, a batch at a time.

    Args:
        network: the trunk's, on the device.
        trunk: says how images are prepared.
        pixels: uint8, shape (images, channels, height, width).
        image_size: height and width that they are brought to.
        device: where the network is.

    Returns:
        Float32 on the CPU, shape (images, features).

    Raises:
        InputError: a feature is not finite.
    """
    features = torch.empty(len(pixels), trunk.features)
    with torch.inference_mode():
        for start in range(0, len(pixels), BATCH_SIZE):
            batch = prepare(trunk, pixels[start : start + BATCH_SIZE].to(device), image_size)
            features[start : start + len(batch)] = network(batch).cpu()
    if not is_finite(features):
        raise InputError(f"trunk {trunk.name!r} makes features that are not finite")
    return features
