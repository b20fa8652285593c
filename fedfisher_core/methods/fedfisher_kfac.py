"""FedFisher with the Kronecker-factored Fisher."""

from collections.abc import Sequence

from pydantic import PositiveInt

from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import proportions
from fedfisher_core.methods.fedfisher import aggregate_of
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.solvers.paper import paper_kronecker
from fedfisher_core.solvers.quadratic import kronecker_quadratic


@method("fedfisher_kfac", uploads=(Weights, KFAC), reference="https://arxiv.org/abs/2403.12329")
def fedfisher_kfac(
    server: Server, uploads: Sequence[Upload], *, steps: PositiveInt = 2000, check_every: PositiveInt = 100
) -> Aggregate:
    """Minimise sum_i p_i (w - w_i)^T (A_i (x) G_i) (w - w_i) by the paper's optimiser (FedFisher, equation 7).

    Args:
        server: selects among the iterates on its validation set.
        uploads: the weights w_i and the factors A_i, G_i of every layer.
        steps: of the optimiser.
        check_every: steps between two evaluations on the validation set.

    Returns:
        The iterate that scored best.
    """
    quadratic = kronecker_quadratic(
        [upload[Weights].tensors for upload in uploads],
        [upload[KFAC].blocks() for upload in uploads],
        proportions(uploads),
    )
    return aggregate_of(paper_kronecker(quadratic, steps=steps, check_every=check_every, score=server.scorer()))
