"""Weighted means and sums of what clients upload, and methods that need nothing else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.statistic import TensorStatistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.models.spec import Parameters


def proportions(uploads: Sequence[Upload]) -> list[float]:
    """Each client's part of all examples, p_i = n_i / sum_j n_j."""
    total = sum(upload.num_examples for upload in uploads)
    return [upload.num_examples / total for upload in uploads]


def class_proportions(uploads: Sequence[Upload]) -> Tensor:
    """Each client's part of all examples of each class, n_ic / sum_j n_jc.

    Returns:
        Double precision, shape (clients, classes); equal parts of a class that no client has.
    """
    counts = torch.stack([upload[LabelCounts].tensors["counts"] for upload in uploads]).double()
    held = counts.sum(0)
    return torch.where(held > 0, counts / held.clamp(min=1), 1 / len(uploads))


def weighted_sum(tensors: Iterable[Mapping[str, Tensor]], weights: Sequence[float]) -> dict[str, Tensor]:
    """Add named tensors of several clients one after another: sum_i weights_i tensors_i."""
    total: dict[str, Tensor] = {}
    for weight, one in zip(weights, tensors, strict=True):
        for name, tensor in one.items():
            total[name] = total[name].add_(weight * tensor) if name in total else weight * tensor
    return total


def median_parameters(models: Sequence[Parameters]) -> Parameters:
    """Take the median of each weight; of an even number of models, the lower of the two middle values."""
    middle = (len(models) - 1) // 2
    # A GPU has no `median` along a dimension whose ties are broken in a fixed order.
    return {name: torch.stack([model[name] for model in models]).sort(0).values[middle] for name in models[0]}


def mean_parameters(uploads: Sequence[Upload]) -> Parameters:
    """Average the clients' weights by their numbers of examples, as FedAvg does."""
    return weighted_sum(Column(uploads, lambda upload: upload[Weights].tensors), proportions(uploads))


# A quotient by a weight that is known to fewer than 10 binary digits says too little.
_KNOWN = 2.0**10


@dataclass(frozen=True)
class Sums:
    """Sums over clients, each known up to the rounding of fixed-point numbers.

    Args:
        num_examples: sum_i n_i.
        totals: sum_i n_i x_i in double precision, by term x and tensor.
        errors: the most that an entry of each total may be off.
    """

    num_examples: int
    totals: Mapping[str, Parameters]
    errors: Mapping[str, Mapping[str, float]]

    def mean(self, term: str) -> Parameters:
        """sum_i p_i x_i, in double precision."""
        return {name: total / self.num_examples for name, total in self.totals[term].items()}

    def mean_weight(self, term: str) -> Parameters:
        """sum_i p_i x_i of divisors x_i that are not negative; 0 where rounding would decide the quotient."""
        errors = self.errors[term]
        return {
            name: torch.where(total > _KNOWN * errors[name], total, 0) / self.num_examples
            for name, total in self.totals[term].items()
        }


@dataclass(frozen=True)
class Summation:
    """A method written in sums over clients.

    Args:
        terms: the products x_i that one client computes of its statistics, in double precision, by name and tensor;
            the sums are of n_i x_i.
        aggregate: what the server makes of the sums: a function like the method's, with the same settings.
        counted_once: names of terms that are divided by n_i, so that their sums need no room for examples.
    """

    terms: Callable[[Upload], Mapping[str, Parameters]]
    aggregate: Callable[..., Aggregate]
    counted_once: frozenset[str] = frozenset()


def weights_term(upload: Upload) -> dict[str, Parameters]:
    """The weights w_i, as term "weights"."""
    return {"weights": {name: tensor.double() for name, tensor in upload[Weights].tensors.items()}}


COUNTED_WEIGHTS = frozenset({"weights", "clients"})
"""Names of the terms of `counted_weights`."""


def counted_weights(upload: Upload) -> dict[str, Parameters]:
    """Terms "weights" (w_i / n_i) and "clients" (1 / n_i, the one tensor "count").

    In their sums every client counts once, as what is added is multiplied by n_i.
    """
    weights = {name: tensor / upload.num_examples for name, tensor in weights_term(upload)["weights"].items()}
    return {"weights": weights, "clients": {"count": torch.tensor(1 / upload.num_examples, dtype=torch.float64)}}


def weighted_by(statistic: type[TensorStatistic], upload: Upload) -> dict[str, Parameters]:
    """Terms "fisher" (F_i) and "product" (F_i w_i): a client's weights w_i, weighted coordinate by coordinate.

    They are in double precision: in single, products with a tiny F_i would be lost.

    Args:
        statistic: holds F_i, named and shaped like w_i.
    """
    fisher = {name: tensor.double() for name, tensor in upload[statistic].tensors.items()}
    return {
        "fisher": fisher,
        "product": {name: fisher[name] * tensor for name, tensor in upload[Weights].tensors.items()},
    }


def weighted_terms(statistic: type[TensorStatistic]) -> Callable[[Upload], dict[str, Parameters]]:
    """Terms "weights" (w_i), "fisher" (F_i), "product" (F_i w_i) and "energy" (the number w_i^T F_i w_i).

    Args:
        statistic: holds F_i, named and shaped like w_i.
    """

    def terms(upload: Upload) -> dict[str, Parameters]:
        weights = weights_term(upload)["weights"]
        weighted = weighted_by(statistic, upload)
        energy = torch.stack([(weighted["product"][name] * tensor).sum() for name, tensor in weights.items()]).sum()
        return {"weights": weights, **weighted, "energy": {"total": energy}}

    return terms
