"""A normal distribution of the features of each class, at the client's own network (CCVR)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import Field
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.class_gaussians import (
    ClassGaussians,
    Covariance,
    gaussian_shapes,
    gaussian_tensors,
)
from fedfisher_core.client.statistics.features import last_features_of, require_last_linear
from fedfisher_core.models.spec import ModelSpec


@dataclass(frozen=True)
class FeatureGaussians(ClassGaussians):
    """Mean and covariance of each class's inputs of the last layer, whose earlier layers the client has trained too.

    The tensors are those of `ClassGaussians`.
    """

    name: ClassVar[str] = "feature_gaussians"

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
        return cls(gaussian_tensors(last_features_of(local), local.examples.labels, local.classes, covariance))

    @classmethod
    def shapes(cls, spec: ModelSpec, *, covariance: Covariance = "diagonal") -> dict[str, Size]:
        """Name the means, and the deviations or covariances."""
        return gaussian_shapes(spec.classes, require_last_linear(spec).in_features, covariance)
