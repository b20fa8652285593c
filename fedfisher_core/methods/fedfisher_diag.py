"""FedFisher with the diagonal Fisher."""

from collections.abc import Sequence

from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.upload import Column, Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import proportions
from fedfisher_core.methods.fedfisher import ClosedForm, DiagonalSolver, aggregate_by, solver_validates
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.sums import Summation, Sums, weighted_terms
from fedfisher_core.solvers.quadratic import diagonal_quadratic, diagonal_quadratic_of_sums

DEFAULT_SOLVER = ClosedForm()


def _of_sums(server: Server, sums: Sums, *, solver: DiagonalSolver) -> Aggregate:
    quadratic = diagonal_quadratic_of_sums(
        mean=sums.mean("weights"),
        fisher=sums.mean_weight("fisher"),
        product=sums.mean("product"),
        energy=sums.mean("energy")["total"].item(),
    )
    return aggregate_by(solver, quadratic, server)


@method(
    "fedfisher_diag",
    uploads=(Weights, DiagonalFisher),
    reference="https://arxiv.org/abs/2403.12329",
    sums=Summation(weighted_terms(DiagonalFisher), _of_sums),
    validates=solver_validates,
)
def fedfisher_diag(server: Server, uploads: Sequence[Upload], *, solver: DiagonalSolver = DEFAULT_SOLVER) -> Aggregate:
    """Minimise sum_i p_i (w - w_i)^T diag(F_i) (w - w_i) (FedFisher, equation 7).

    In closed form, the default, this is FisherMerge (Matena and Raffel 2022) without its floor: coordinates whose total
    Fisher is below 1e-6 take the mean of the clients there, and here only those whose total Fisher is 0.

    Args:
        server: scores iterates on its validation set.
        uploads: the weights w_i and the diagonal Fishers F_i.
        solver: how the objective is minimised.

    Returns:
        The solution.
    """
    quadratic = diagonal_quadratic(
        Column(uploads, lambda upload: upload[Weights].tensors),
        Column(uploads, lambda upload: upload[DiagonalFisher].tensors),
        proportions(uploads),
    )
    return aggregate_by(solver, quadratic, server)
