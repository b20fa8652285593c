"""FedFisher with the Kronecker-factored Fisher."""

from collections.abc import Sequence

from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import proportions
from fedfisher_core.methods.fedfisher import ConjugateGradients, KroneckerSolver, aggregate_by, require_selectable
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.solvers.quadratic import kronecker_quadratic

DEFAULT_SOLVER = ConjugateGradients()


@method(
    "fedfisher_kfac",
    uploads=(Weights, KFAC),
    reference="https://arxiv.org/abs/2403.12329",
    require=require_selectable,
)
def fedfisher_kfac(server: Server, uploads: Sequence[Upload], *, solver: KroneckerSolver = DEFAULT_SOLVER) -> Aggregate:
    """Minimise sum_i p_i (w - w_i)^T (A_i (x) G_i) (w - w_i) (FedFisher, equation 7).

    Args:
        server: scores iterates on its validation set.
        uploads: the weights w_i and the factors A_i, G_i of every layer.
        solver: how the objective is minimised.

    Returns:
        The solution.
    """
    quadratic = kronecker_quadratic(
        [upload[Weights].tensors for upload in uploads],
        [upload[KFAC].factors for upload in uploads],
        proportions(uploads),
    )
    return aggregate_by(solver, quadratic, server)
