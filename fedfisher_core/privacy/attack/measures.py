"""How close an attack's images come to a client's, and how close images from elsewhere come by the same measures."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.privacy.attack.evaluator import Evaluator
from fedfisher_core.privacy.attack.gan import Gan
from fedfisher_core.privacy.attack.inversion import Reconstruction

_CHUNK = 1000


@dataclass(frozen=True)
class Measures:
    """How some images look to the evaluator.

    Args:
        accuracy: share of them that it classifies as the target.
        feature_distance: the smallest Euclidean distance, in the features before its last layer, between one of them
            and one of the client's images of the target.
    """

    accuracy: float
    feature_distance: float


@dataclass(frozen=True)
class AttackMeasures:
    """How an attack looks to the evaluator.

    Args:
        best: of the images of the best restart, as the attacker chooses it.
        mean_accuracy: share of the images of all restarts that are classified as the target.
    """

    best: Measures
    mean_accuracy: float


def measure(evaluator: Evaluator, pixels: Tensor, *, target: int, private: Tensor) -> Measures:
    """Judge images, pixels between 0 and 1 of shape (images, channels, height, width), on the evaluator's device.

    Args:
        target: the class that was attacked.
        private: the client's images of that class, likewise.

    Raises:
        InputError: there are no images, or no private ones.
    """
    if len(pixels) == 0 or len(private) == 0:
        raise InputError(f"{len(pixels)} images and {len(private)} of the client's; allowed: at least 1 of each")
    labels = torch.full((len(pixels),), target, device=pixels.device)
    features = evaluator.features(pixels)
    distances = [_nearest(features, evaluator.features(chunk)) for chunk in private.split(_CHUNK)]
    return Measures(accuracy=evaluator.accuracy(pixels, labels), feature_distance=min(distances))


def _nearest(features: Tensor, others: Tensor) -> float:
    """The smallest distance of all pairs, without the cancellation that a product of matrices brings."""
    return torch.cdist(features, others, compute_mode="donot_use_mm_for_euclid_dist").min().item()


def measure_attack(
    evaluator: Evaluator, reconstruction: Reconstruction, *, target: int, private: Tensor
) -> AttackMeasures:
    """Judge what an attack on class `target` found, by the client's images of that class.

    Raises:
        InputError: there are no private images.
    """
    pixels = reconstruction.images.flatten(0, 1)
    labels = torch.full((len(pixels),), target, device=pixels.device)
    return AttackMeasures(
        best=measure(evaluator, reconstruction.best_images, target=target, private=private),
        mean_accuracy=evaluator.accuracy(pixels, labels),
    )


def random_pixels(shape: torch.Size, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw a floor: images of independent pixels, uniform between 0 and 1; the generator is on the CPU."""
    return torch.rand(shape, generator=generator).to(device)


def prior_images(gan: Gan, count: int, *, clip: float, generator: torch.Generator) -> Tensor:
    """Draw a floor: images of the prior from latents without any search.

    Args:
        clip: largest absolute value of a latent, as in the search.
        generator: draws the latents, on the CPU.

    Returns:
        Pixels between 0 and 1, shape (count, channels, height, width), on the prior's device.
    """
    latents = torch.randn(count, gan.generator.latent, generator=generator).clamp_(-clip, clip)
    with torch.no_grad():
        chunks = latents.to(next(gan.generator.parameters()).device).split(_CHUNK)
        return torch.cat([gan.generator(chunk) for chunk in chunks])


@dataclass(frozen=True)
class References:
    """The measures of images from elsewhere.

    Args:
        uniform: images of random pixels.
        prior: images of the prior without a search.
        real: real images of the target that no client holds.
    """

    uniform: Measures
    prior: Measures
    real: Measures


def measure_references(
    evaluator: Evaluator,
    gan: Gan,
    *,
    target: int,
    private: Tensor,
    real: Tensor,
    count: int,
    clip: float,
    generator: torch.Generator,
) -> References:
    """Judge the floors and the ceiling of an attack; see `References`.

    Args:
        private: the client's images of class `target`, shape (images, channels, height, width).
        real: test images of that class, likewise.
        count: random images of either kind.
        clip: largest absolute value of a latent.
        generator: draws the random images, on the CPU.

    Raises:
        InputError: there are no images of a kind.
    """
    shape = torch.Size((count, *private.shape[1:]))
    uniform = random_pixels(shape, generator, private.device)
    prior = prior_images(gan, count, clip=clip, generator=generator)
    return References(
        uniform=measure(evaluator, uniform, target=target, private=private),
        prior=measure(evaluator, prior, target=target, private=private),
        real=measure(evaluator, real, target=target, private=private),
    )
