"""KnOTS: TIES on products of adapters, in coordinates that all clients share."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.products import pairs_of, products_of, require_adapters, with_products
from fedfisher_core.methods.shared.selection import Factors, keep_best, tries_several
from fedfisher_core.methods.shared.task_vectors import beyond_rounding
from fedfisher_core.methods.ties import trimmed_mean


@method(
    "knots",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2410.19735",
    supports=require_adapters,
    validates=tries_several("scale"),
    of_products=True,
    one_round=True,
)
def knots(
    server: Server,
    uploads: Sequence[Upload],
    *,
    share: Annotated[float, Field(gt=0, le=1, description="k, the part of a client's numbers that stays")] = 0.2,
    scale: Annotated[
        Factors, Field(description="how far to go; of several, the best on the validation set is kept")
    ] = (1.0,),
) -> Aggregate:
    """Align the products B A by a joint singular value decomposition, and merge them by TIES (Stoica et al. 2025).

    With [D_1, ..., D_N] = U S [V_1, ..., V_N]^T for each adapter, D_i = B_i A_i, all clients share the columns of U.
    The matrices S V_i^T of all adapters together are merged by TIES: the largest k of each client's numbers stay, signs
    are elected, and what agrees is averaged, see `ties`. The product is `scale` U (S V^T), cut to the server's rank. As
    in the authors' code (gstoica27/KnOTS, `task_merger.py`), singular vectors without values are left out, and k is
    0.2. Their scale is chosen on validation examples, and their product keeps the rank that it has. All other weights
    are averaged by the clients' numbers of examples; in the paper, each task keeps a head of its own. In one
    round, products start at zero, so that no start is asked for; further rounds are refused.
    """
    products = [products_of(upload[Weights].tensors) for upload in uploads]
    bases: dict[str, Tensor] = {}
    aligned: list[dict[str, Tensor]] = [{} for _ in uploads]
    for name in products[0]:
        joined = torch.cat([one[name] for one in products], dim=1)
        left, values, right = torch.linalg.svd(joined, full_matrices=False)
        held = beyond_rounding(values, joined.shape)
        # Where no client changed anything, a direction of zeros stays.
        held[0] = True
        bases[name] = left[:, held]
        parts = (values[:, None] * right)[held].chunk(len(uploads), dim=1)
        for own, part in zip(aligned, parts, strict=True):
            own[name] = part
    merged = {name: bases[name] @ part for name, part in trimmed_mean(aligned, share).items()}
    shapes = server.spec.shapes()
    rank = shapes[next(iter(pairs_of(shapes)))][0]
    return keep_best(
        server,
        scale,
        lambda factor: with_products(uploads, {name: factor * one for name, one in merged.items()}, rank),
        name="scale",
    )
