"""FedFisher with the Kronecker-factored Fisher."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import proportions
from fedfisher_core.methods.fedfisher import ConjugateGradients, KroneckerSolver, aggregate_by, solver_validates
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.solvers.quadratic import kronecker_quadratic

DEFAULT_SOLVER = ConjugateGradients()


@method(
    "fedfisher_kfac", uploads=(Weights, KFAC), reference="https://arxiv.org/abs/2403.12329", validates=solver_validates
)
def fedfisher_kfac(
    server: Server,
    uploads: Sequence[Upload],
    *,
    solver: KroneckerSolver = DEFAULT_SOLVER,
    factored_damping: Annotated[
        float, Field(ge=0, le=1e6, description="lambda of A_i (x) G_i + lambda I, divided over the factors")
    ] = 0.0,
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
    damped = [
        {name: block.damped(factored_damping) for name, block in upload[KFAC].factors.items()} for upload in uploads
    ]
    quadratic = kronecker_quadratic([upload[Weights].tensors for upload in uploads], damped, proportions(uploads))
    return aggregate_by(solver, quadratic, server)
