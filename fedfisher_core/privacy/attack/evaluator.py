"""The judge of reconstructions: a classifier of all clients' images, and how close images come to a client's."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.engine.progress import track
from fedfisher_core.privacy.attack.gan import Gan, load_state, require_size, state_of
from fedfisher_core.privacy.attack.inversion import Reconstruction
from fedfisher_core.privacy.attack.settings import EvaluatorSettings

_CHUNK = 1000


class Classifier(nn.Module):
    """Five convolutions with batch normalisation, the mean over the remaining pixels, and a linear layer.

    Args:
        images: their size, height and width at least 8.
    """

    def __init__(self, *, images: Images, classes: int, filters: int) -> None:
        super().__init__()
        require_size(images)
        self.convolutions = nn.Sequential(
            *_normalised(images.channels, filters, kernel=5, stride=2),
            *_normalised(filters, 2 * filters, kernel=3, stride=1),
            *_normalised(2 * filters, 2 * filters, kernel=3, stride=2),
            *_normalised(2 * filters, 4 * filters, kernel=3, stride=1),
            *_normalised(4 * filters, 4 * filters, kernel=3, stride=2),
        )
        self.head = nn.Linear(4 * filters, classes)

    def features(self, pixels: Tensor) -> Tensor:
        """Compute the inputs of the last layer, shape (batch, 4 filters)."""
        return self.convolutions(pixels).mean((2, 3))

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute logits of shape (batch, classes)."""
        return self.head(self.features(pixels))


def _normalised(inputs: int, outputs: int, *, kernel: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


@dataclass(frozen=True, eq=False)
class Evaluator:
    """A trained classifier in evaluation mode; it takes pixels between 0 and 1, without normalisation."""

    classifier: Classifier

    def logits(self, pixels: Tensor) -> Tensor:
        """From pixels between 0 and 1, shape (images, channels, height, width), to logits, shape (images, classes)."""
        with torch.no_grad():
            return torch.cat([self.classifier(chunk) for chunk in pixels.split(_CHUNK)])

    def features(self, pixels: Tensor) -> Tensor:
        """Compute the features of pixels before the last layer, shape (images, features)."""
        with torch.no_grad():
            return torch.cat([self.classifier.features(chunk) for chunk in pixels.split(_CHUNK)])

    def accuracy(self, pixels: Tensor, labels: Tensor) -> float:
        """Measure the share of images that are classified as labelled.

        Raises:
            InputError: there are no images.
        """
        if len(pixels) == 0:
            raise InputError("there are no images to classify; allowed: at least 1")
        return (self.logits(pixels).argmax(1) == labels).double().mean().item()

    def state(self) -> dict[str, Tensor]:
        """Copies of the parameters and buffers on the CPU: all that `load` needs."""
        return state_of(self.classifier, "evaluator")

    @classmethod
    def load(
        cls,
        state: Mapping[str, Tensor],
        settings: EvaluatorSettings,
        *,
        images: Images,
        classes: int,
        device: torch.device,
    ) -> "Evaluator":
        """Rebuild an evaluator from its state and the settings of its training.

        Raises:
            InputError: the state was of an evaluator of another shape.
        """
        classifier = Classifier(images=images, classes=classes, filters=settings.filters)
        return cls(load_state(classifier, state, "evaluator").to(device))


def train_evaluator(
    images: Tensor,
    labels: Tensor,
    settings: EvaluatorSettings,
    *,
    classes: int,
    generator: torch.Generator,
) -> Evaluator:
    """Train a classifier by Adam, on the images' device.

    Args:
        images: pixels between 0 and 1, shape (images, channels, height, width).
        labels: shape (images,), on the same device.
        generator: draws weights and batches, on the CPU.

    Raises:
        InputError: there are fewer images than a batch, or they are too small.
        DivergedAttackError: the training loss is not finite.
    """
    if images.ndim != 4 or len(images) < settings.batch_size:
        raise InputError(
            f"images have shape {tuple(images.shape)}; allowed: (images, channels, height, width), with at least "
            f"batch_size={settings.batch_size} images"
        )
    classifier = Classifier(images=Images(*images.shape[1:]), classes=classes, filters=settings.filters)
    _initialise(classifier, generator)
    classifier.to(images.device).train()
    optimiser = torch.optim.Adam(classifier.parameters(), lr=settings.learning_rate, fused=True)
    batches = len(images) // settings.batch_size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs * batches)
    for epoch in track(range(settings.epochs), what="epoch"):
        total = torch.zeros((), device=images.device)
        order = torch.randperm(len(images), generator=generator)[: batches * settings.batch_size]
        for indices in order.to(images.device).split(settings.batch_size):
            loss = functional.cross_entropy(classifier(images[indices]), labels[indices])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.detach()
        if not torch.isfinite(total):
            raise DivergedAttackError(f"evaluator: the training loss is {total.item() / batches} in epoch {epoch + 1}")
    return Evaluator(classifier.eval())


def _initialise(classifier: Classifier, generator: torch.Generator) -> None:
    """Draw weights that keep the size of what ReLU passes on; batch normalisation starts as torch makes it."""
    for module in classifier.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


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
