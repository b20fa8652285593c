"""Predictions of networks: their accuracy and loss, and how evenly these are distributed over classes and clients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.tensors import Examples

# For larger batches, such as 1,000 images, glibc maps new memory for each layer's outputs, page by page. A small
# convolutional network then takes up to twice as long on a CPU.
_BATCH = 100


@torch.no_grad()
def logits(network: nn.Module, inputs: Tensor) -> Tensor:
    """Outputs of a network in evaluation mode, shape (examples, classes)."""
    return torch.cat([network(batch) for batch in inputs.split(_BATCH)])


def accuracy(network: nn.Module, examples: Examples) -> float:
    """Fraction of at least one example for which the largest output is right, in evaluation mode."""
    return float((logits(network, examples.inputs).argmax(1) == examples.labels).double().mean())


def mean_loss(network: nn.Module, examples: Examples) -> float:
    """Mean cross-entropy in nats on at least one example, in evaluation mode."""
    return float(functional.cross_entropy(logits(network, examples.inputs), examples.labels))


@dataclass(frozen=True)
class Measures:
    """Measures of a prediction on the test images.

    Args:
        accuracy: fraction of images whose class is predicted.
        loss: mean of -log of the probability of the true class, in nats.
        worst_class_accuracy: smallest accuracy over the classes that have test images.
        worst_client_accuracy: smallest accuracy over clients, on images as each client sees them. It is measured on the
            client's own test images if these are known; otherwise test images are weighted by its distribution of
            labels.
        confusion: counts, shape (true class, predicted class).
    """

    accuracy: float
    loss: float
    worst_class_accuracy: float
    worst_client_accuracy: float
    confusion: tuple[tuple[float, ...], ...]


Seen = Callable[[int], Tensor]
"""Takes a client's number; gives the test inputs as the client sees them."""

_Predict = Callable[[Tensor], Tensor]
"""Takes inputs; gives log-probabilities on the CPU."""


def measure(
    predictors: Sequence[_Predict],
    test: Examples,
    label_counts: Tensor,
    *,
    seen: Seen | None = None,
    own: Sequence[Tensor] | None = None,
) -> Measures:
    """Measure predictions separately and average the measures.

    Args:
        predictors: such as `mean_probability` or `mean_logit`; at least one.
        label_counts: of the clients, shape (clients, classes).
        seen: the test images as clients see them, made once for all predictions; None if all clients see them
            unchanged.
        own: indices of each client's own test images; None if they belong to no client. A client without any is left
            out of the worst client's accuracy.

    Raises:
        ArithmeticError: an output on a test image is not finite.
    """
    labels = test.labels.cpu()
    found = [predict(test.inputs) for predict in predictors]
    confusions = [_confusion(one, labels) for one in found]
    present = confusions[0].sum(1) > 0
    # Classes without test images can't be measured; a client's distribution is taken over the others.
    counts = label_counts.double() * present
    if own is None:
        correct = torch.stack([counts @ _by_class(one) for one in confusions])
        if seen is not None:
            for client, held in enumerate(counts):
                inputs = seen(client)
                for row, predict in enumerate(predictors):
                    correct[row, client] = held @ _by_class(_confusion(predict(inputs), labels))
        by_client = (correct / counts.sum(1).clamp(min=1))[:, counts.sum(1) > 0]
        if by_client.shape[1] == 0:
            raise ArithmeticError("no client holds an example of a class that the test images have")
    else:
        by_client = _of_own(predictors, found, labels, seen, own)
    return Measures(
        accuracy=_mean([float((one.argmax(1) == labels).double().mean()) for one in found]),
        loss=_mean([_mean_loss(one, labels) for one in found]),
        worst_class_accuracy=_mean([float(_by_class(one)[present].min()) for one in confusions]),
        worst_client_accuracy=_mean([float(one.min()) for one in by_client]),
        confusion=tuple(tuple(row) for row in torch.stack(confusions).mean(0).tolist()),
    )


def mean_logit(networks: Sequence[nn.Module], weights: Tensor | None) -> _Predict:
    """Predict by the mean output before the softmax.

    Args:
        networks: in evaluation mode.
        weights: of the networks class by class, shape (networks, classes), for a sum of weighted outputs; None for
            the mean.

    Returns:
        A function from inputs to log-probabilities in double precision, on the CPU.
    """

    def predict(inputs: Tensor) -> Tensor:
        each = torch.stack([logits(network, inputs).double() for network in networks])
        mean = each.mean(0) if weights is None else (weights.to(each)[:, None, :] * each).sum(0)
        return mean.log_softmax(1).cpu()

    return predict


def mean_probability(networks: Sequence[nn.Module], weights: Tensor | None) -> _Predict:
    """Predict the mean probability.

    Args:
        networks: in evaluation mode.
        weights: of the networks class by class, shape (networks, classes), not negative; None for equal ones. The
            weighted probabilities of an image are divided by their sum.

    Returns:
        A function from inputs to log-probabilities in double precision, on the CPU.
    """

    def predict(inputs: Tensor) -> Tensor:
        each = torch.stack([logits(network, inputs).double().log_softmax(1) for network in networks])
        if weights is not None:
            each = each + weights.to(each).log()[:, None, :]
        return torch.logsumexp(each, 0).log_softmax(1).cpu()

    return predict


def _mean_loss(log_probabilities: Tensor, labels: Tensor) -> float:
    losses = -log_probabilities.gather(1, labels[:, None])
    unknown = len(losses) - int(losses.isfinite().sum())
    if unknown:
        raise ArithmeticError(f"the outputs on {unknown} of {len(losses)} test images are not finite")
    return float(losses.mean())


def _of_own(
    predictors: Sequence[_Predict], found: Sequence[Tensor], labels: Tensor, seen: Seen | None, own: Sequence[Tensor]
) -> Tensor:
    """Accuracies on clients' own test images, shape (predictions, clients that have any)."""
    columns = []
    for client, rows in enumerate(own):
        if len(rows) == 0:
            continue
        if seen is None:
            each = [one[rows] for one in found]
        else:
            inputs = seen(client)
            each = [predict(inputs[rows.to(inputs.device)]) for predict in predictors]
        columns.append(torch.stack([(one.argmax(1) == labels[rows]).double().mean() for one in each]))
    return torch.stack(columns, 1)


def _confusion(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    classes = log_probabilities.shape[1]
    pairs = labels * classes + log_probabilities.argmax(1)
    return torch.bincount(pairs, minlength=classes**2).reshape(classes, classes).double()


def _by_class(confusion: Tensor) -> Tensor:
    """Accuracy of each class; 0 for one without images."""
    return confusion.diagonal() / confusion.sum(1).clamp(min=1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
