"""RegMean++: RegMean on what the merged layers before make of the clients' inputs; a reference of many passes."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.regmean import least_squares
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions, weighted_sum
from fedfisher_core.methods.shared.second_moments import scale_off_diagonal
from fedfisher_core.models.spec import parameters_of


@method(
    "regmean_plus_plus",
    uploads=(Weights, Gram),
    reference="https://arxiv.org/abs/2508.03121",
    ranked=False,
    asks_again=True,
)
def regmean_plus_plus(
    server: Server,
    uploads: Sequence[Upload],
    *,
    off_diagonal: Annotated[float, Field(ge=0, le=1, description="factor on the off-diagonal entries of G_i")] = 0.9,
) -> Aggregate:
    """Fit every linear layer to what the merged layers before it make of clients' inputs (Nguyen et al. 2025).

    RegMean's G_i are of inputs that client i's own layers make. Here they are of what the merged layers before make of
    its examples (`fusion_bench/method/regmean_plusplus` of the authors' repository nthehai01/RegMean-plusplus, which
    goes on block by block). So each layer needs another exchange with every client, and this is no one-shot method. It
    sends what RegMean sends, in as many parts as there are linear layers: bits are counted as RegMean's, though the
    G_i of later parts are used as they are. As in RegMean here, clients count by their examples.

    Args:
        off_diagonal: see `regmean`; one value, as nothing is selected. The authors take 0.95 for CLIP and 0.1 by
            default.
    """
    shares = proportions(uploads)
    merged = weighted_sum([upload[Weights].tensors for upload in uploads], [1 / len(uploads)] * len(uploads))
    network = server.network(merged)
    for layer in Gram.shapes(server.spec):
        gram = product = torch.zeros((), dtype=torch.float64)
        for share, upload in zip(shares, uploads, strict=True):
            seen = upload.ask(Gram, network).tensors[layer]
            shrunk = share * scale_off_diagonal(seen.double(), off_diagonal)
            gram = gram + shrunk
            product = product + shrunk @ upload[Weights].tensors[f"{layer}.weight"].double().T
        with torch.no_grad():
            network.get_parameter(f"{layer}.weight").copy_(least_squares(gram, product))
    return Aggregate.of(parameters_of(network))
