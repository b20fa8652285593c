"""Moments of a client's inputs of each class, from which a server can draw synthetic inputs."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Size, Tensor
from torch.nn import functional

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.class_gaussians import FEWEST
from fedfisher_core.client.statistics.principal import LowFrequencies, Principal, principal
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.leading import MIXTURE
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.data.layouts import Tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec

DIRECTIONS = 240
FREQUENCIES = 14
"""Chosen for mixture distillation, uncompressed, on images that no client trained on and seeds that no report has.

The trials were CIFAR-10 and Fashion-MNIST with LeNet and MNIST with the mlp, one or two seeds each. There 12, 14 and 16
frequencies with 240 directions are within one percentage point of accuracy (reports/class_moments.txt).
"""
_BATCH_SIZE = 1000


@dataclass(frozen=True)
class ClassMoments(TensorStatistic):
    """Means of the classes of a client's inputs, and the covariance within each class, in few numbers.

    Means and covariances are of the low frequencies of an input, `numbers` of them. A class with fewer than two
    examples is left out, and its share and mean are 0. D^T D + diag(deviations^2) has the variances of sum_c p_c C_c,
    where C_c is the covariance of class c. The tensors are:

    * `shares`, shape (classes,): p_c, the class's part of the client's examples.
    * `means`, shape (classes, numbers).
    * `directions`, shape (directions, numbers): D. Each row is an eigenvector of one C_c, sqrt(p_c) times as long as
      the standard deviation along it. The longest of all classes are kept.
    * `owners`, shape (directions,): the class of each direction.
    * `deviations`, shape (numbers,): common to all classes.
    * `residuals`, shape (inputs,): root mean squares of the inputs without their low frequencies.
    """

    name: ClassVar[str] = "class_moments"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = MIXTURE

    @classmethod
    def compute(
        cls,
        local: Local,
        *,
        directions: Annotated[
            int, Field(ge=1, le=10_000, description="of the covariances of all classes, the longest first")
        ] = DIRECTIONS,
        frequencies: Annotated[
            int, Field(ge=1, le=10_000, description="along each side of an image, the lowest first")
        ] = FREQUENCIES,
    ) -> Self:
        """Average over the client's examples of each class; InputError if no class has two examples."""
        inputs, labels = local.examples.inputs, local.examples.labels
        counts = labels.bincount(minlength=local.classes)
        counts[counts < FEWEST] = 0
        if not counts.any():
            raise InputError(
                f"statistic {cls.name!r} needs {FEWEST} examples of one class, as the mean of one is the example "
                f"itself; the client's {len(labels)} are all of different classes; allowed: more examples, and with "
                f"partition.min_size={local.classes + 1} each client has enough"
            )
        shares = counts.double() / counts.sum()
        low = LowFrequencies(tuple(inputs.shape[1:]), frequencies)
        used = counts[labels] > 0
        kept, squares = _divided(inputs.flatten(1)[used], low)
        classes = labels[used]
        found = {label: principal(kept[classes == label], directions) for label in counts.nonzero().flatten().tolist()}
        rows, owners = _longest(found, shares, directions)
        means = torch.zeros(local.classes, low.size, dtype=torch.float64, device=inputs.device)
        for label, one in found.items():
            means[label] = one.mean
        variances = sum(shares[label] * one.variances for label, one in found.items())
        left = (variances - rows.square().sum(0)).clamp(min=0)
        tensors = {"shares": shares, "means": means, "directions": rows, "owners": owners, "deviations": left.sqrt()}
        return cls({name: tensor.float() for name, tensor in tensors.items()} | {"residuals": squares.sqrt().float()})

    @classmethod
    def shapes(
        cls, spec: ModelSpec, *, directions: int = DIRECTIONS, frequencies: int = FREQUENCIES
    ) -> dict[str, Size]:
        """Name the tensors' shapes; InputError if inputs are tokens, which have no mean."""
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"statistic {cls.name!r} takes images and numbers; the data has {spec.inputs}")
        size = LowFrequencies(spec.inputs.shape, frequencies).size
        rows = _rows(directions, spec.classes, size)
        return {
            "shares": Size([spec.classes]),
            "means": Size([spec.classes, size]),
            "directions": Size([rows, size]),
            "owners": Size([rows]),
            "deviations": Size([size]),
            "residuals": Size([spec.inputs.size]),
        }


def _divided(inputs: Tensor, low: LowFrequencies) -> tuple[Tensor, Tensor]:
    """The low frequencies of inputs, shape (examples, numbers), and the mean squares of the rest."""
    kept, squares = [], torch.zeros(inputs.shape[1], dtype=torch.float64, device=inputs.device)
    for batch in inputs.split(_BATCH_SIZE):
        kept.append(low.keep(batch))
        squares += (batch - low.fill(kept[-1])).square().sum(0, dtype=torch.float64)
    return torch.cat(kept), squares / len(inputs)


def _rows(directions: int, classes: int, size: int) -> int:
    """Number of directions, at most as many as exist."""
    return min(directions, classes * size)


def _longest(found: dict[int, Principal], shares: Tensor, directions: int) -> tuple[Tensor, Tensor]:
    """The longest directions of all classes, each scaled by the root of its class's share, and their classes.

    The longest comes first. Rows are 0 if the client's classes have fewer directions.
    """
    rows = torch.cat([shares[label].sqrt() * one.directions for label, one in found.items()])
    owners = torch.cat([shares.new_full([len(one.directions)], label) for label, one in found.items()])
    kept = rows.norm(dim=1).argsort(descending=True, stable=True)[:directions]
    lacking = _rows(directions, len(shares), rows.shape[1]) - len(kept)
    return functional.pad(rows[kept], (0, 0, 0, lacking)), functional.pad(owners[kept], (0, lacking))
