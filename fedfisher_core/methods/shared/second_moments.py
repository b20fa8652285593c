"""How the server scales second moments."""

from torch import Tensor

from fedfisher_core.client.local import estimator_of
from fedfisher_core.fisher.estimators import nominal_directions
from fedfisher_core.methods.server import Server


def scale_off_diagonal(matrix: Tensor, factor: float) -> Tensor:
    """Scale the entries of a matrix off its diagonal: factor M + (1 - factor) diag(M).

    A positive semi-definite matrix stays so with a factor in [0, 1]. A vector is the diagonal of one that has no such
    entries.
    """
    if matrix.ndim == 1:
        return matrix
    return factor * matrix + (1 - factor) * matrix.diagonal().diag()


def factor_scale(server: Server) -> float:
    """By what factor A exceeds the second moment of a layer's inputs, and G falls below that of its slopes.

    It is sqrt(C'), with the C' nominal directions of `Block.kronecker`.
    """
    return float(nominal_directions(estimator_of(server.fisher), server.spec.classes) ** 0.5)
