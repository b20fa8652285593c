"""TIES on products of adapters."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.products import merge_products, require_adapters
from fedfisher_core.methods.shared.selection import Factors, tries_several
from fedfisher_core.methods.ties import ties


@method(
    "ties_products",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2306.01708",
    shared_start=True,
    supports=require_adapters,
    validates=tries_several("scale"),
    of_products=True,
)
def ties_products(
    server: Server,
    uploads: Sequence[Upload],
    *,
    share: Annotated[float, Field(gt=0, le=1, description="k, the part of a client's numbers that stays")] = 0.2,
    scale: Annotated[
        Factors, Field(description="lambda, how far to go; of several, the best on the validation set is kept")
    ] = (1.0,),
) -> Aggregate:
    """Apply TIES to the products B A and the other weights, and cut each merged product to the server's rank.

    It is TIES as the code of KnOTS runs it on adapters (gstoica27/KnOTS, `task_merger.py`), except that the head is
    among the weights and that the result keeps the rank. See `ties`.
    """
    return merge_products(ties, server, uploads, share=share, scale=scale)
