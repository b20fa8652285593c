"""FedFisher with the Kronecker-factored Fisher."""

from collections.abc import Sequence

from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.fedfisher import (
    ConjugateGradients,
    FactoredDamping,
    KroneckerSolver,
    aggregate_by,
    kronecker_objective,
    solver_validates,
)
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server

DEFAULT_SOLVER = ConjugateGradients()


@method(
    "fedfisher_kfac",
    uploads=(Weights, KFAC),
    sees_each=(),
    reference="https://arxiv.org/abs/2403.12329",
    validates=solver_validates,
)
def fedfisher_kfac(
    server: Server,
    uploads: Sequence[Upload],
    *,
    solver: KroneckerSolver = DEFAULT_SOLVER,
    factored_damping: FactoredDamping = 0.0,
) -> Aggregate:
    """Minimise sum_i p_i (w - w_i)^T (A_i (x) G_i) (w - w_i) (FedFisher, equation 7).

    Args:
        server: scores iterates on its validation set.
        uploads: the weights w_i and the factors A_i, G_i of every layer.
        solver: how the objective is minimised.
        factored_damping: see `Kronecker.damped`; the factors of every client are damped before they are summed.

    Returns:
        The solution.
    """
    return aggregate_by(solver, kronecker_objective(uploads, factored_damping=factored_damping), server)
