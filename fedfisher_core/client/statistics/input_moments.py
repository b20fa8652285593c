"""Mean and leading directions of a client's inputs, from which a server can draw synthetic inputs."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from pydantic import Field
from torch import Size

from fedfisher_core.client.local import Local, Releasing
from fedfisher_core.client.statistics.principal import Principal, leading, principal
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.leading import LEADING
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.data.layouts import Tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec

DIRECTIONS = 60


@dataclass(frozen=True)
class InputMoments(TensorStatistic):
    """Mean and covariance of a client's inputs, as its networks take them, in few numbers.

    D^T D + diag(deviations^2) has the variances of the data. The tensors are:

    * `mean`, shape (inputs,).
    * `directions`, shape (directions, inputs): D. Each row is an eigenvector of the covariance, as long as the standard
      deviation along it; rows are 0 if the data has fewer directions.
    * `deviations`, shape (inputs,): standard deviations of what the directions leave of each input.
    """

    name: ClassVar[str] = "input_moments"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = LEADING
    mechanisms: ClassVar[int | None] = 1

    @classmethod
    def compute(
        cls,
        local: Local,
        *,
        directions: Annotated[
            int, Field(ge=1, le=10_000, description="of the covariance, the longest first")
        ] = DIRECTIONS,
    ) -> Self:
        """Average over the client's examples."""
        return cls._of(principal(local.examples.inputs.flatten(1), directions))

    @classmethod
    def release(cls, local: Releasing, *, directions: int = DIRECTIONS) -> Self:
        """Shorten the client's noisy mean and covariance."""
        mean, covariance = local.input_moments(cls.name)
        return cls._of(Principal(mean, covariance.diagonal(), leading(covariance, directions)))

    @classmethod
    def _of(cls, found: Principal) -> Self:
        """Keep a covariance's leading directions, and the variances of the rest."""
        left = found.variances - found.directions.square().sum(0)
        tensors = {"mean": found.mean, "directions": found.directions, "deviations": left.clamp(min=0).sqrt()}
        return cls({name: tensor.float() for name, tensor in tensors.items()})

    @classmethod
    def shapes(cls, spec: ModelSpec, *, directions: int = DIRECTIONS) -> dict[str, Size]:
        """Name the tensors' shapes; InputError if inputs are tokens, which have no mean."""
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"statistic {cls.name!r} takes images and numbers; the data has {spec.inputs}")
        size = spec.inputs.size
        return {"mean": Size([size]), "directions": Size([min(directions, size), size]), "deviations": Size([size])}
