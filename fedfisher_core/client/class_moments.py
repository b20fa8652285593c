"""Mean and leading directions of a client's inputs of each class, from which a server can draw inputs of its own."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Size, Tensor

from fedfisher_core.client.class_gaussians import FEWEST
from fedfisher_core.client.input_moments import DIRECTIONS
from fedfisher_core.client.principal import Principal, principal
from fedfisher_core.client.statistic import ServerView, TensorStatistic
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Tokens
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire.mixture import MIXTURE
from fedfisher_core.wire.structure import Structure

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local


@dataclass(frozen=True)
class ClassMoments(TensorStatistic):
    """Means of the classes of a client's inputs, and the covariance within each of them, with few numbers.

    `shares`, shape (classes,), are p_c, the classes' parts of the client's examples, and the rows of `means`, shape
    (classes, inputs), their means; both are 0 for a class with fewer than two examples, which is left out. Each row of
    `directions`, shape (directions, inputs), is an eigenvector of the covariance of one class, which `owners`, shape
    (directions,), names, and is sqrt(p_c) times as long as the standard deviation along it. All classes share them
    out: those kept are the longest. `deviations`, shape (inputs,), are common to all classes, so that
    D^T D + diag(deviations^2) has the variances of sum_c p_c C_c.
    """

    name: ClassVar[str] = "class_moments"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = MIXTURE

    @classmethod
    def compute(
        cls,
        local: "Local",
        *,
        directions: Annotated[
            int, Field(ge=1, le=10_000, description="of the covariances of all classes, the longest first")
        ] = DIRECTIONS,
    ) -> Self:
        """Average over the client's examples of each class.

        Raises:
            InputError: the client has no two examples of one class.
        """
        inputs, labels = local.examples.inputs.flatten(1), local.examples.labels
        counts = labels.bincount(minlength=local.classes)
        counts[counts < FEWEST] = 0
        if not counts.any():
            raise InputError(f"statistic {cls.name!r}: the client has no {FEWEST} examples of a class; it needs them")
        shares = counts.double() / counts.sum()
        held = counts.nonzero().flatten().tolist()
        found = {label: principal(inputs[labels == label], directions) for label in held}
        rows, owners = _longest(found, shares, directions)
        means = inputs.new_zeros(local.classes, inputs.shape[1], dtype=torch.float64)
        for label, one in found.items():
            means[label] = one.mean
        variances = sum(shares[label] * one.variances for label, one in found.items())
        left = (variances - rows.square().sum(0)).clamp(min=0)
        tensors = {"shares": shares, "means": means, "directions": rows, "owners": owners, "deviations": left.sqrt()}
        return cls({name: tensor.float() for name, tensor in tensors.items()})

    @classmethod
    def shapes(cls, spec: ModelSpec, *, directions: int = DIRECTIONS) -> dict[str, Size]:
        """Name the shares, the means, the directions with their owners, and the deviations.

        Raises:
            InputError: inputs are tokens, which have no mean.
        """
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"statistic {cls.name!r} takes images and numbers; the data has {spec.inputs}")
        size, rows = spec.inputs.size, min(directions, spec.inputs.size)
        return {
            "shares": Size([spec.classes]),
            "means": Size([spec.classes, size]),
            "directions": Size([rows, size]),
            "owners": Size([rows]),
            "deviations": Size([size]),
        }


def _longest(found: dict[int, Principal], shares: Tensor, directions: int) -> tuple[Tensor, Tensor]:
    """Choose the longest directions of all classes, each scaled by the root of its class's share.

    Returns:
        Their rows, the longest first, and their classes. A class has as many to choose from as there are rows.
    """
    rows = torch.cat([shares[label].sqrt() * one.directions for label, one in found.items()])
    owners = torch.cat([shares.new_full([len(one.directions)], label) for label, one in found.items()])
    kept = rows.norm(dim=1).argsort(descending=True, stable=True)[: min(directions, rows.shape[1])]
    return rows[kept], owners[kept]
