"""Second moments whose off-diagonal entries are scaled down."""

from torch import Tensor


def scale_off_diagonal(matrix: Tensor, factor: float) -> Tensor:
    """Scale the entries of a matrix off its diagonal; a positive semi-definite one stays so with a factor in [0, 1].

    Args:
        matrix: shape (n, n).
        factor: of the entries.

    Returns:
        factor M + (1 - factor) diag(M).
    """
    return factor * matrix + (1 - factor) * matrix.diagonal().diag()
