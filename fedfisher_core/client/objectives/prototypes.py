"""FAFI's self-alignment: learnt prototypes of classes, and two views of each image (Zeng et al. 2025)."""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedfisher_core.client.objectives.objective import Knowledge, Known, cross_entropies, objective
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import denormalise, normalise


def two_views(spec: DatasetSpec, inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Change a batch of images twice; one view comes after the other, shape (2 batch, channels, height, width)."""
    pixels = denormalise(inputs, spec)
    return torch.cat([normalise(_view(pixels, generator), spec) for _ in range(2)])


def _view(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Crop, mirror and recolour images in [0, 1], all of a batch alike, as the authors' transforms do.

    torchvision's own classes draw from the generator of the process, which all of its threads share. Here the same
    draws are made in the same order from the client's generator.
    """
    # Runs have torchvision. Merging loads this module without it.
    from torchvision.transforms import functional as change

    def uniform(low: float, high: float) -> Tensor:
        return torch.empty(1).uniform_(low, high, generator=generator)

    _, channels, height, width = pixels.shape
    # The tries of torchvision for a crop that fits into the image.
    for _ in range(10):
        area = height * width * uniform(0.2, 1).item()
        ratio = uniform(math.log(3 / 4), math.log(4 / 3)).exp().item()
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            spare = height - rows, width - columns
            top, left = (int(torch.randint(0, most + 1, (1,), generator=generator)) for most in spare)
            pixels = change.resized_crop(pixels, top, left, rows, columns, [height, width], antialias=False)
            break
    if torch.rand(1, generator=generator) < 0.5:
        pixels = change.hflip(pixels)
    if channels != 3:
        return pixels
    if torch.rand(1, generator=generator) <= 0.8:
        order = torch.randperm(4, generator=generator).tolist()
        factors = [uniform(*bounds).item() for bounds in ((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1))]
        changes = (change.adjust_brightness, change.adjust_contrast, change.adjust_saturation, change.adjust_hue)
        for index in order:
            pixels = changes[index](pixels, factors[index])
    if torch.rand(1, generator=generator) < 0.2:
        pixels = change.rgb_to_grayscale(pixels, num_output_channels=3)
    return pixels


@objective(
    "prototypes",
    reference="https://github.com/zenghui9977/FAFI_ICML25",
    reads=(Knowledge.FEATURES, Knowledge.HEAD),
    views=two_views,
)
def prototypes(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    temperature: Annotated[float, Field(gt=0, description="divides similarities of features in the contrast")] = 0.07,
) -> Tensor:
    """FAFI: features near the prototype of their class and near each other, and prototypes apart.

    Features z are the inputs of the last layer, normalised to length 1, and prototypes P its weights. The loss of an
    image is 2 CE(z P^T, y) + SupCon(z) + CE(P P^T), where CE is the cross-entropy. The authors write the first term as
    two terms that are equal. SupCon is the contrast of Khosla et al. (2020), and CE(P P^T) the mean over the classes of
    -log softmax(P P^T)_cc. Each batch counts with two views of each image. The last layer's bias has no gradient.
    """
    features, own = functional.normalize(known.features.now, dim=1), known.head
    apart = cross_entropies(own @ own.T, torch.arange(len(own), device=own.device)).mean()
    return 2 * cross_entropies(features @ own.T, labels) + _contrast(features, labels, temperature) + apart


def _contrast(features: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """SupCon of each of two or more: the mean of -log softmax(z z'^T / temperature) over others of its class, or 0."""
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    similarities = (features @ features.T / temperature).masked_fill(itself, -torch.inf)
    alike = (labels[:, None] == labels) & ~itself
    return -similarities.log_softmax(1).masked_fill(~alike, 0).sum(1) / alike.sum(1).clamp(min=1)
