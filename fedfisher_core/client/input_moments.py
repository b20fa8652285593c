"""Mean and leading directions of the inputs of a client, from which a server can draw inputs of its own."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import torch
from pydantic import Field
from scipy.linalg import eigh
from torch import Size, Tensor

from fedfisher_core.client.statistic import ServerView, TensorStatistic
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Tokens
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire.leading import LEADING
from fedfisher_core.wire.structure import Structure

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local, Releasing

DIRECTIONS = 60
_BATCH_SIZE = 1000


@dataclass(frozen=True)
class InputMoments(TensorStatistic):
    """Mean and covariance of a client's inputs, as its networks take them, with few numbers.

    `mean` has the shape (inputs,). The rows of `directions`, shape (directions, inputs), are eigenvectors of the
    covariance, each as long as the standard deviation along it; of directions that the data does not have, they are 0.
    `deviations`, shape (inputs,), are standard deviations of what the directions leave of each input, so that
    D^T D + diag(deviations^2) has the variances of the data.
    """

    name: ClassVar[str] = "input_moments"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = LEADING
    mechanisms: ClassVar[int | None] = 1

    @classmethod
    def compute(
        cls,
        local: "Local",
        *,
        directions: Annotated[
            int, Field(ge=1, le=10_000, description="of the covariance, the longest first")
        ] = DIRECTIONS,
    ) -> Self:
        """Average over the client's examples; sums are kept in double precision."""
        inputs = local.examples.inputs.flatten(1)
        mean = inputs.mean(0, dtype=torch.float64)
        if len(inputs) < len(mean):
            centred = inputs - mean
            return cls._of(mean, centred.square().mean(0), _leading_of_few(centred, directions))
        covariance = mean.new_zeros(len(mean), len(mean))
        for batch in inputs.split(_BATCH_SIZE):
            centred = batch - mean.float()
            covariance += (centred.T @ centred).double()
        return cls._shortened(mean, covariance / len(inputs), directions)

    @classmethod
    def release(cls, local: "Releasing", *, directions: int = DIRECTIONS) -> Self:
        """Shorten the client's noisy mean and covariance."""
        return cls._shortened(*local.input_moments(cls.name), directions)

    @classmethod
    def _shortened(cls, mean: Tensor, covariance: Tensor, directions: int) -> Self:
        """Keep of a covariance its leading directions, and of the rest the variances."""
        return cls._of(mean, covariance.diagonal(), _leading(covariance, directions).to(mean.device))

    @classmethod
    def _of(cls, mean: Tensor, variances: Tensor, leading: Tensor) -> Self:
        left = variances - leading.square().sum(0)
        found = {"mean": mean, "directions": leading, "deviations": left.clamp(min=0).sqrt()}
        return cls({name: tensor.float() for name, tensor in found.items()})

    @classmethod
    def shapes(cls, spec: ModelSpec, *, directions: int = DIRECTIONS) -> dict[str, Size]:
        """Name the mean, the directions and the deviations.

        Raises:
            InputError: inputs are tokens, which have no mean.
        """
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"statistic {cls.name!r} takes images and numbers; the data has {spec.inputs}")
        size = spec.inputs.size
        return {"mean": Size([size]), "directions": Size([min(directions, size), size]), "deviations": Size([size])}


def _leading(covariance: Tensor, directions: int) -> Tensor:
    """Eigenvectors of the largest eigenvalues, each as long as its eigenvalue's root, the longest first."""
    size = len(covariance)
    first = max(0, size - directions)
    values, vectors = eigh(covariance.cpu().numpy(), subset_by_index=[first, size - 1])
    # Rounding, and the noise of a release, leave negative eigenvalues where the data has no extent.
    scaled = torch.from_numpy(vectors) * torch.from_numpy(values).clamp(min=0).sqrt()
    return scaled.T.flip(0).contiguous()


def _leading_of_few(centred: Tensor, directions: int) -> Tensor:
    """`_leading` of the covariance of fewer examples than it has rows, by way of their inner products.

    Where v is an eigenvector of X X^T / n for the eigenvalue lambda, X^T v / sqrt(n) is one of X^T X / n, and its
    length is sqrt(lambda).

    Args:
        centred: X, the examples less their mean, shape (n, inputs), double precision.
        directions: most that are kept.

    Returns:
        Shape (directions, inputs), or (inputs, inputs) where that is less; 0 in rows beyond the examples.
    """
    count, size = centred.shape
    first = max(0, count - directions)
    products = (centred @ centred.T / count).cpu().numpy()
    _, vectors = eigh(products, subset_by_index=[first, count - 1])
    found = torch.from_numpy(vectors).to(centred).T.flip(0) @ centred / count**0.5
    return torch.cat([found, centred.new_zeros(min(directions, size) - len(found), size)])
