"""Projections cut to their leading components (MA-Echo, section 7.3, "The SVD decomposition for P")."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.null_space import NullSpaceProjection
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec

Ranks = Annotated[
    tuple[PositiveInt, ...] | None,
    Field(description="components that are left of each layer's projection, in the order of the layers; default: all"),
]


def require_ranks(settings: Any, spec: ModelSpec) -> None:
    """Refuse the setting `ranks` unless it has a number for each layer, at most the size of the layer's projection."""
    if settings.ranks is None:
        return
    ranks, sizes = list(settings.ranks), {name: shape[0] for name, shape in NullSpaceProjection.shapes(spec).items()}
    if len(ranks) != len(sizes):
        raise InputError(f"ranks={ranks}: allowed: {len(sizes)} numbers, one for each layer: {', '.join(sizes)}")
    for rank, (name, size) in zip(ranks, sizes.items(), strict=True):
        if rank > size:
            raise InputError(f"ranks={ranks}: {rank} for layer {name!r}; allowed: 1 to {size}")


def cut(projections: Mapping[str, Tensor], ranks: Sequence[int] | None) -> dict[str, Tensor]:
    """Cut a client's projections to their ranks, which stand in the order of the layers; None keeps all."""
    if ranks is None:
        return dict(projections)
    return {name: leading(matrix, rank) for (name, matrix), rank in zip(projections.items(), ranks, strict=True)}


def cut_complements(complements: Mapping[str, Tensor], ranks: Sequence[int] | None) -> dict[str, Tensor]:
    """Cut I - Q instead of the matrices Q, which the authors' code has in place of I - P.

    Q is nearly the identity, whose leading components say nothing.
    """
    spans = {name: torch.eye(len(one), dtype=one.dtype, device=one.device) - one for name, one in complements.items()}
    return {name: complements[name] + (spans[name] - one) for name, one in cut(spans, ranks).items()}


def leading(matrix: Tensor, rank: int) -> Tensor:
    """The nearest matrix of a rank to a symmetric one: U_r S_r V_r^T of its singular value decomposition.

    Of full rank, it is the matrix itself.
    """
    if rank == len(matrix):
        return matrix
    values, vectors = torch.linalg.eigh(matrix.double())
    kept = values.abs().topk(rank).indices
    return ((vectors[:, kept] * values[kept]) @ vectors[:, kept].T).to(matrix)
