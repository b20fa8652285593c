"""RegMean on products of adapters."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.regmean import regmean
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.products import merge_products, require_adapters
from fedfisher_core.methods.shared.selection import Fractions, tries_several


@method(
    "regmean_products",
    uploads=(Weights, Gram),
    sees_each=(),
    reference="https://arxiv.org/abs/2212.09849",
    supports=require_adapters,
    validates=tries_several("off_diagonal"),
    of_products=True,
)
def regmean_products(
    server: Server,
    uploads: Sequence[Upload],
    *,
    off_diagonal: Fractions = (0.1, 0.9),
) -> Aggregate:
    """Apply RegMean to the products B A, and cut each result to the server's rank.

    D^T = (sum_i p_i G_i)^+ sum_i p_i G_i D_i^T for each adapter, with D_i = B_i A_i and the Gram matrix G_i of the
    adapter's inputs (Jin et al. 2023, equation 2). It is cut to its leading singular triples. RegMean on the factors
    would fit A and B apart, and B to the inputs that each client's own A makes. All else is as in `regmean`.

    Args:
        off_diagonal: see `regmean`.
    """
    return merge_products(regmean, server, uploads, off_diagonal=off_diagonal)
