"""Who judges reconstructions: a classifier that was trained on all clients' images."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.attack.networks import load_state, require_size, state_of
from fedfisher_core.attack.settings import EvaluatorSettings
from fedfisher_core.errors import DivergedAttackError, InputError
from fedfisher_core.layouts import Images
from fedfisher_core.progress import track

_CHUNK = 1000


class Classifier(nn.Module):
    """Five convolutions with batch normalisation, the mean over what is left of the image, and a linear layer.

    Args:
        images: their size, height and width at least 8.
        classes: number of labels.
        filters: of the first convolution.

    Raises:
        InputError: the images are too small.
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
        """Compute what the last layer sees, shape (batch, 4 filters)."""
        return self.convolutions(pixels).mean((2, 3))

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute logits of shape (batch, classes)."""
        return self.head(self.features(pixels))


def _normalised(inputs: int, outputs: int, *, kernel: int, stride: int) -> list[nn.Module]:
    """A convolution with batch normalisation and ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


@dataclass(frozen=True, eq=False)
class Evaluator:
    """A trained classifier; it takes pixels between 0 and 1, without normalisation.

    Args:
        classifier: in evaluation mode.
    """

    classifier: Classifier

    def logits(self, pixels: Tensor) -> Tensor:
        """Classify images.

        Args:
            pixels: between 0 and 1, shape (images, channels, height, width), on the classifier's device.

        Returns:
            Shape (images, classes).
        """
        with torch.no_grad():
            return torch.cat([self.classifier(chunk) for chunk in pixels.split(_CHUNK)])

    def features(self, pixels: Tensor) -> Tensor:
        """Compute the features of images before the last layer.

        Args:
            pixels: see `logits`.

        Returns:
            Shape (images, features).
        """
        with torch.no_grad():
            return torch.cat([self.classifier.features(chunk) for chunk in pixels.split(_CHUNK)])

    def accuracy(self, pixels: Tensor, labels: Tensor) -> float:
        """Measure the share of images that are classified as labelled.

        Args:
            pixels: see `logits`.
            labels: shape (images,).

        Returns:
            Between 0 and 1.

        Raises:
            InputError: there are no images.
        """
        if len(pixels) == 0:
            raise InputError("there are no images to classify; allowed: at least 1")
        return (self.logits(pixels).argmax(1) == labels).double().mean().item()

    def state(self) -> dict[str, Tensor]:
        """Name all that `load` needs.

        Returns:
            Copies of the parameters and buffers, on the CPU.
        """
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
        """Rebuild an evaluator from its state.

        Args:
            state: what `state` returned.
            settings: those of its training.
            images: their size.
            classes: number of labels.
            device: where the classifier goes.

        Returns:
            The same evaluator.

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
    """Train a classifier by Adam.

    Args:
        images: pixels between 0 and 1, shape (images, channels, height, width), on the device to train on.
        labels: shape (images,), on the same device.
        settings: the classifier's size and its training.
        classes: number of labels.
        generator: draws weights and batches, on the CPU.

    Returns:
        The trained classifier, on the images' device.

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
