"""FedFisher with the diagonal Fisher."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums, proportions, weighted_terms
from fedfisher_core.methods.shared.fedfisher import ClosedForm, DiagonalSolver, aggregate_by, solver_validates
from fedfisher_core.methods.solvers.quadratic import diagonal_quadratic, diagonal_quadratic_of_sums

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

    In closed form, the default, this is FisherMerge (Matena and Raffel 2022) without its floor. There coordinates whose
    total Fisher is below 1e-6 take the mean of the clients, here only those whose total Fisher is 0.
    """
    quadratic = diagonal_quadratic(
        Column(uploads, lambda upload: upload[Weights].tensors),
        Column(uploads, lambda upload: upload[DiagonalFisher].tensors),
        proportions(uploads),
    )
    return aggregate_by(solver, quadratic, server)
