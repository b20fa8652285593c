"""Methods whose server needs sums only, written in them: what secure aggregation computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from fedfisher_core.client.statistic import TensorStatistic
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.models.spec import Parameters

# A weight that is known to fewer than 10 binary digits says too little about a quotient by it.
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
        """sum_i p_i x_i of non-negative x_i that are divided by; 0 where rounding would decide the quotient."""
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
    """Terms of sums in which every client counts once, as what is added is multiplied by n_i.

    Args:
        upload: of one client.

    Returns:
        Terms "weights" (w_i / n_i) and "clients" (1 / n_i, the one tensor "count").
    """
    weights = {name: tensor / upload.num_examples for name, tensor in weights_term(upload)["weights"].items()}
    return {"weights": weights, "clients": {"count": torch.tensor(1 / upload.num_examples, dtype=torch.float64)}}


def weighted_by(statistic: type[TensorStatistic], upload: Upload) -> dict[str, Parameters]:
    """Weight a client's parameters coordinate by coordinate.

    Args:
        statistic: the one that holds the weights F_i, named and shaped like w_i.
        upload: of the client.

    Returns:
        "fisher" (F_i) and "product" (F_i w_i), in double precision: in single, what a tiny F_i weights would be lost.
    """
    fisher = {name: tensor.double() for name, tensor in upload[statistic].tensors.items()}
    return {
        "fisher": fisher,
        "product": {name: fisher[name] * tensor for name, tensor in upload[Weights].tensors.items()},
    }


def weighted_terms(statistic: type[TensorStatistic]) -> Callable[[Upload], dict[str, Parameters]]:
    """Terms of averages in which each coordinate has a weight of its own.

    Args:
        statistic: the one that holds the weights F_i, named and shaped like w_i.

    Returns:
        A function to terms "weights" (w_i), "fisher" (F_i), "product" (F_i w_i), and
        "energy" (the number w_i^T F_i w_i).
    """

    def terms(upload: Upload) -> dict[str, Parameters]:
        weights = weights_term(upload)["weights"]
        weighted = weighted_by(statistic, upload)
        energy = torch.stack([(weighted["product"][name] * tensor).sum() for name, tensor in weights.items()]).sum()
        return {"weights": weights, **weighted, "energy": {"total": energy}}

    return terms
