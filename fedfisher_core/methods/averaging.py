"""Weighted means of what clients upload."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedfisher_core.client.label_counts import LabelCounts
from fedfisher_core.client.upload import Column, Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.models.spec import Parameters


def proportions(uploads: Sequence[Upload]) -> list[float]:
    """Each client's part of all examples, p_i = n_i / sum_j n_j."""
    total = sum(upload.num_examples for upload in uploads)
    return [upload.num_examples / total for upload in uploads]


def class_proportions(uploads: Sequence[Upload]) -> Tensor:
    """Each client's part of all examples of each class.

    Args:
        uploads: with label counts n_ic.

    Returns:
        n_ic / sum_j n_jc in double precision, shape (clients, classes); equal parts of a class that nobody has.
    """
    counts = torch.stack([upload[LabelCounts].tensors["counts"] for upload in uploads]).double()
    held = counts.sum(0)
    return torch.where(held > 0, counts / held.clamp(min=1), 1 / len(uploads))


def weighted_sum(tensors: Iterable[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """Add named tensors of several clients, one after another.

    Args:
        tensors: one mapping a client, with equal names and shapes.
        weights: one factor a client.

    Returns:
        sum_i weights_i tensors_i, by name.
    """
    total: dict[str, Tensor] = {}
    for weight, one in zip(weights, tensors, strict=True):
        for name, tensor in one.items():
            total[name] = total[name].add_(weight * tensor) if name in total else weight * tensor
    return total


def median_parameters(models: Sequence[Parameters]) -> Parameters:
    """Take the median of each weight, of an even number of models the lower of the two in the middle."""
    middle = (len(models) - 1) // 2
    # A GPU has no `median` along a dimension whose ties are broken in a fixed order.
    return {name: torch.stack([model[name] for model in models]).sort(0).values[middle] for name in models[0]}


def mean_parameters(uploads: Sequence[Upload]) -> Parameters:
    """Average the clients' weights by their numbers of examples, as FedAvg does."""
    return weighted_sum(Column(uploads, lambda upload: upload[Weights].tensors), proportions(uploads))
