"""FedFisher with the Kronecker-factored Fisher, on products of adapters."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.fedfisher_kfac import DEFAULT_SOLVER, fedfisher_kfac
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.fedfisher import FactoredDamping, KroneckerSolver, solver_validates
from fedfisher_core.methods.shared.products import merge_products, require_adapters


@method(
    "fedfisher_kfac_products",
    uploads=(Weights, KFAC),
    sees_each=(),
    reference="https://arxiv.org/abs/2403.12329",
    supports=require_adapters,
    validates=solver_validates,
    of_products=True,
)
def fedfisher_kfac_products(
    server: Server,
    uploads: Sequence[Upload],
    *,
    solver: KroneckerSolver = DEFAULT_SOLVER,
    factored_damping: FactoredDamping = 0.0,
) -> Aggregate:
    """Apply FedFisher to the products B A, and cut each result to the server's rank.

    It minimises sum_i p_i (D - D_i)^T (M_i (x) G_i) (D - D_i) for each adapter (FedFisher, equation 7), with the
    products D_i = B_i A_i, the second moment M_i of the adapter's inputs, and that of the gradients at its outputs,
    G_i. D is cut to its leading singular triples. FedFisher on the factors takes the Fisher of A at each client's B,
    which says nothing of A where B is near zero, and that of B at each client's own A. The outputs of A and the inputs
    of B have second moments too, r by r, which are sent and not used.

    Args:
        factored_damping: see `Kronecker.damped`; every client's factors are damped before they are summed.
    """
    return merge_products(fedfisher_kfac, server, uploads, solver=solver, factored_damping=factored_damping)
