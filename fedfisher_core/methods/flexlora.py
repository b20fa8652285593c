"""FlexLoRA: the mean of the adapters' products, at the server's rank."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.products import mean_products, pairs_of, require_adapters, with_products


@method(
    "flexlora",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2402.11505",
    supports=require_adapters,
    of_products=True,
)
def flexlora(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Average the products B A by the clients' numbers of examples, and truncate them to the rank (Bai et al. 2024).

    The mean is cut to the leading singular triples. Each factor gets the root of each singular value; any other
    division has the same product. All other weights are averaged.
    """
    rank = server.spec.shapes()[next(iter(pairs_of(server.spec.shapes())))][0]
    return Aggregate.of(with_products(uploads, mean_products(uploads), rank))
