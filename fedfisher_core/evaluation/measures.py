"""Accuracy, loss, and how evenly they are shared by classes and clients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.data.tensors import Examples
from fedfisher_core.evaluation.predictions import logits


@dataclass(frozen=True)
class Measures:
    """What is reported of a prediction on the test images.

    Args:
        accuracy: fraction of images whose class is predicted.
        loss: mean of -log of the probability of the true class, in nats.
        worst_class_accuracy: smallest accuracy over the classes that have test images.
        worst_client_accuracy: smallest accuracy over clients, each as if the test images had its label distribution.
        confusion: counts, shape (true class, predicted class).
    """

    accuracy: float
    loss: float
    worst_class_accuracy: float
    worst_client_accuracy: float
    confusion: tuple[tuple[float, ...], ...]


def measure_mean(
    networks: Sequence[nn.Module], test: Examples, label_counts: Tensor, *, weights: Tensor | None = None
) -> Measures:
    """Measure the prediction whose probabilities are the mean of several networks'.

    Args:
        networks: in evaluation mode; one network is its own mean.
        test: the test images.
        label_counts: of the clients, shape (clients, classes).
        weights: of the networks class by class, shape (networks, classes), not negative; None for equal ones. The
            weighted probabilities of an image are divided by their sum.

    Returns:
        The measures.
    """
    each = torch.stack([logits(network, test.inputs).double().log_softmax(1) for network in networks])
    if weights is not None:
        each = each + weights.to(each).log()[:, None, :]
    return _measure(torch.logsumexp(each, 0).log_softmax(1).cpu(), test.labels.cpu(), label_counts)


def measure_mean_logit(
    networks: Sequence[nn.Module], test: Examples, label_counts: Tensor, *, weights: Tensor | None = None
) -> Measures:
    """Measure the prediction whose outputs before the softmax are the mean of several networks'.

    Args:
        networks: in evaluation mode.
        test: the test images.
        label_counts: of the clients, shape (clients, classes).
        weights: of the networks class by class, shape (networks, classes), for a sum of weighted outputs; None for
            the mean.

    Returns:
        The measures.
    """
    each = torch.stack([logits(network, test.inputs).double() for network in networks])
    mean = each.mean(0) if weights is None else (weights.to(each)[:, None, :] * each).sum(0)
    return _measure(mean.log_softmax(1).cpu(), test.labels.cpu(), label_counts)


def measure_each(networks: Sequence[nn.Module], test: Examples, label_counts: Tensor) -> Measures:
    """Measure several networks by themselves and average the measures.

    Args:
        networks: in evaluation mode.
        test: the test images.
        label_counts: of the clients, shape (clients, classes).

    Returns:
        The mean of each measure.
    """
    each = [measure_mean([network], test, label_counts) for network in networks]
    return Measures(
        accuracy=_mean([one.accuracy for one in each]),
        loss=_mean([one.loss for one in each]),
        worst_class_accuracy=_mean([one.worst_class_accuracy for one in each]),
        worst_client_accuracy=_mean([one.worst_client_accuracy for one in each]),
        confusion=_rows(torch.tensor([one.confusion for one in each]).double().mean(0)),
    )


def _measure(log_probabilities: Tensor, labels: Tensor, label_counts: Tensor) -> Measures:
    classes = log_probabilities.shape[1]
    predicted = log_probabilities.argmax(1)
    confusion = torch.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes).double()
    present = confusion.sum(1) > 0
    by_class = confusion.diagonal() / confusion.sum(1).clamp(min=1)
    # Classes without test images can't be measured; a client's distribution is taken over the others.
    counts = label_counts.double() * present
    by_client = (counts @ by_class) / counts.sum(1).clamp(min=1)
    return Measures(
        accuracy=float((predicted == labels).double().mean()),
        loss=float(-log_probabilities.gather(1, labels[:, None]).mean()),
        worst_class_accuracy=float(by_class[present].min()),
        worst_client_accuracy=float(by_client[counts.sum(1) > 0].min()),
        confusion=_rows(confusion),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rows(matrix: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
