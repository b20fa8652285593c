"""FedFisher with the full Fisher, for small networks."""

from collections.abc import Sequence

from fedfisher_core.client.dense_fisher import DenseFisher
from fedfisher_core.client.upload import Column, Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import proportions
from fedfisher_core.methods.fedfisher import ConjugateGradients, DenseSolver, aggregate_by, solver_validates
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.solvers.quadratic import dense_quadratic

DEFAULT_SOLVER = ConjugateGradients()


@method(
    "fedfisher_full",
    uploads=(Weights, DenseFisher),
    sees_each=(),
    reference="https://arxiv.org/abs/2403.12329",
    validates=solver_validates,
)
def fedfisher_full(server: Server, uploads: Sequence[Upload], *, solver: DenseSolver = DEFAULT_SOLVER) -> Aggregate:
    """Minimise sum_i p_i (w - w_i)^T F_i (w - w_i) with full Fishers (FedFisher, equation 6).

    Args:
        server: scores iterates on its validation set.
        uploads: the weights w_i and the Fishers F_i.
        solver: how the objective is minimised.

    Returns:
        The solution.
    """
    quadratic = dense_quadratic(
        Column(uploads, lambda upload: upload[Weights].tensors),
        Column(uploads, lambda upload: upload[DenseFisher].tensors["matrix"]),
        proportions(uploads),
    )
    return aggregate_by(solver, quadratic, server)
