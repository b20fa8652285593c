"""DARE on products of adapters."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.dare import dare
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.products import merge_products, require_adapters


@method(
    "dare_products",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2311.03099",
    shared_start=True,
    supports=require_adapters,
    of_products=True,
)
def dare_products(
    server: Server,
    uploads: Sequence[Upload],
    *,
    drop: Annotated[float, Field(ge=0, lt=1, description="p, the probability that a number is dropped")] = 0.1,
) -> Aggregate:
    """Apply DARE to the products B A and the other weights, and cut each merged product to the server's rank.

    The numbers of B A are dropped, where the code of KnOTS (gstoica27/KnOTS, `task_merger.py`) does so too before it
    merges adapters by TIES. See `dare`.
    """
    return merge_products(dare, server, uploads, drop=drop)
