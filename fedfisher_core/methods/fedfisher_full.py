"""FedFisher with the full Fisher, for small networks."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.dense_fisher import DenseFisher
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions
from fedfisher_core.methods.shared.fedfisher import ConjugateGradients, DenseSolver, aggregate_by, solver_validates
from fedfisher_core.methods.solvers.quadratic import dense_quadratic

DEFAULT_SOLVER = ConjugateGradients()


@method(
    "fedfisher_full",
    uploads=(Weights, DenseFisher),
    sees_each=(),
    reference="https://arxiv.org/abs/2403.12329",
    validates=solver_validates,
)
def fedfisher_full(server: Server, uploads: Sequence[Upload], *, solver: DenseSolver = DEFAULT_SOLVER) -> Aggregate:
    """Minimise sum_i p_i (w - w_i)^T F_i (w - w_i) with full Fishers (FedFisher, equation 6)."""
    quadratic = dense_quadratic(
        Column(uploads, lambda upload: upload[Weights].tensors),
        Column(uploads, lambda upload: upload[DenseFisher].tensors["matrix"]),
        proportions(uploads),
    )
    return aggregate_by(solver, quadratic, server)
