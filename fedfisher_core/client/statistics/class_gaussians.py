"""A normal distribution of the features of each class (FedPFT)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Size, Tensor

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.features import features_of, require_head
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import SIGNED
from fedfisher_core.models.spec import ModelSpec

Covariance = Literal["diagonal", "spherical", "full"]
FEWEST = 2
"""Least examples of a class that is sent; the mean of a single example would reveal the example."""


@dataclass(frozen=True)
class ClassGaussians(TensorStatistic):
    """Mean and covariance of the features of each class: the most likely normal distribution.

    A class with fewer than two examples has zeros. The tensors are `means`, shape (classes, features), and one of

    * `deviations`, shape (classes, features) for diagonal and (classes,) for spherical covariances;
    * `covariances`, shape (classes, features (features + 1) / 2): entries on and below the diagonal, row by row.
    """

    name: ClassVar[str] = "class_gaussians"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SIGNED

    @classmethod
    def compute(
        cls,
        local: Local,
        *,
        covariance: Annotated[
            Covariance, Field(description="of the features of a class: their variances, the mean of these, or all")
        ] = "diagonal",
    ) -> Self:
        """Average over the client's examples of each class, in double precision."""
        return cls(gaussian_tensors(features_of(local), local.examples.labels, local.classes, covariance))

    @classmethod
    def shapes(cls, spec: ModelSpec, *, covariance: Covariance = "diagonal") -> dict[str, Size]:
        """Name the means, and the deviations or covariances."""
        return gaussian_shapes(spec.classes, require_head(spec).in_features, covariance)

    def draw(self, label: int, count: int, generator: torch.Generator) -> Tensor:
        """Draw features of a class, shape (count, features), with a generator on the CPU."""
        mean = self.tensors["means"][label]
        noise = torch.randn(count, len(mean), generator=generator).to(mean)
        if "deviations" in self.tensors:
            # A rounded deviation may have either sign, which makes no difference.
            return mean + noise * self.tensors["deviations"][label]
        lower = mean.new_zeros(len(mean), len(mean), dtype=torch.float64)
        row, column = torch.tril_indices(len(mean), len(mean))
        lower[row, column] = self.tensors["covariances"][label].double()
        # Only the lower half is read.
        values, vectors = torch.linalg.eigh(lower)
        # Where the class has no variance, rounding gives negative eigenvalues.
        return mean + noise @ (vectors * values.clamp(min=0).sqrt()).T.to(mean)


def gaussian_tensors(features: Tensor, labels: Tensor, classes: int, covariance: Covariance) -> dict[str, Tensor]:
    """Average the rows of each class, in double precision; see `ClassGaussians` for the tensors."""
    size = features.shape[1]
    tensors = {
        name: torch.zeros(shape, device=features.device)
        for name, shape in gaussian_shapes(classes, size, covariance).items()
    }
    for label in range(classes):
        rows = features[labels == label].double()
        if len(rows) < FEWEST:
            continue
        tensors["means"][label] = rows.mean(0)
        centred = rows - rows.mean(0)
        if covariance == "full":
            row, column = torch.tril_indices(size, size)
            tensors["covariances"][label] = (centred.T @ centred / len(rows))[row, column]
            continue
        variances = centred.square().mean(0)
        tensors["deviations"][label] = (variances if covariance == "diagonal" else variances.mean()).sqrt()
    return tensors


def gaussian_shapes(classes: int, size: int, covariance: Covariance) -> dict[str, Size]:
    """Shapes of the tensors of `ClassGaussians`."""
    match covariance:
        case "diagonal":
            spread = {"deviations": Size([classes, size])}
        case "spherical":
            spread = {"deviations": Size([classes])}
        case "full":
            spread = {"covariances": Size([classes, size * (size + 1) // 2])}
    return {"means": Size([classes, size]), **spread}
