"""The judge of reconstructions: a classifier that was trained on all clients' images."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.engine.progress import track
from fedfisher_core.privacy.attack.gan import load_state, require_size, state_of
from fedfisher_core.privacy.attack.settings import EvaluatorSettings

_CHUNK = 1000


class Classifier(nn.Module):
    """Five convolutions with batch normalisation, the mean over the remaining pixels, and a linear layer.

    Args:
        images: their size, height and width at least 8.
        filters: of the first convolution.
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
