"""FedEx-LoRA: the mean of the adapters' products, exactly."""

from collections.abc import Sequence
from dataclasses import replace

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.products import mean_products, pairs_of, require_adapters, with_products
from fedfisher_core.models.spec import Parameters


@method(
    "fedex_lora",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2410.09432",
    supports=require_adapters,
    # The next round would need the frozen weights to move.
    continues=False,
    of_products=True,
)
def fedex_lora(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Add the residual that the means of A and B leave of the mean of B A (Singhal et al. 2024).

    The paper moves the frozen weights by mean(B A) - mean(B) mean(A), and keeps the two means as the adapter. Both
    together are mean(B A), which the global network here has as adapters of the ranks' sum, or of full rank where that
    is less. Means are by the clients' numbers of examples; in the paper, all clients count alike. All other weights are
    averaged.
    """
    products = mean_products(uploads)
    most = max(min(product.shape) for product in products.values())
    rank = min(sum(_rank(upload[Weights].tensors) for upload in uploads), most)
    made = with_products(uploads, products, rank)
    return Aggregate(networks=(made,), spec=replace(server.spec, widths=(rank,)))


def _rank(weights: Parameters) -> int:
    """The rank of a client's adapters; where clients differ in it, the server has zeros in the rows that one lacks."""
    return max(1, *(int(weights[name].any(dim=1).sum()) for name in pairs_of(weights)))
