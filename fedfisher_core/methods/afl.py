"""AFL: ridge regression of the labels on features, the same for any split of the data."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field

from fedfisher_core.client.statistics.class_sums import ClassSums
from fedfisher_core.client.statistics.features import head_of, require_head
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums
from fedfisher_core.methods.shared.gaussian_heads import Moments, inverted, terms
from fedfisher_core.models.spec import ModelSpec


def _supports(spec: ModelSpec) -> None:
    require_head(spec)


def _aggregate(server: Server, moments: Moments, ridge: float) -> Aggregate:
    """Solve (X^T X + r s n I) W^T = X^T Y; with a bias, X and Y have their means subtracted.

    s is the mean eigenvalue of X^T X / n.
    """
    number = moments.counts.sum()
    name, layer = head_of(server.spec.skeleton())
    if layer.bias is None:
        vectors, inverse = inverted(moments.products / number, moments, ridge=ridge)
        weight = ((moments.sums / number) @ vectors * inverse) @ vectors.T
        return Aggregate.of({f"{name}.weight": weight.float()})
    mean, shares = moments.sums.sum(0) / number, moments.counts / number
    vectors, inverse = inverted(moments.products / number - torch.outer(mean, mean), moments, ridge=ridge)
    weight = ((moments.sums / number - torch.outer(shares, mean)) @ vectors * inverse) @ vectors.T
    return Aggregate.of({f"{name}.weight": weight.float(), f"{name}.bias": (shares - weight @ mean).float()})


def _of_sums(server: Server, sums: Sums, *, ridge: float) -> Aggregate:
    return _aggregate(server, Moments.of_sums(sums), ridge)


@method(
    "afl",
    uploads=(LabelCounts, ClassSums, Gram),
    reference="https://arxiv.org/abs/2405.16240",
    trains=False,
    supports=_supports,
    sums=Summation(terms, _of_sums),
    # Outputs are regressions of 0 and 1.
    log_odds=False,
)
def afl(
    server: Server,
    uploads: Sequence[Upload],
    *,
    ridge: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="added to all variances, in units of their mean; without a bias, to all mean squares; "
            "directions that are then below 1e-6 of the largest get no weight",
        ),
    ] = 0.1,
) -> Aggregate:
    """Regress one-hot labels on the features of all clients (He et al. 2025).

    With features X and one-hot labels Y of all clients, W = Y^T X (X^T X + r s n I)^-1, where s is the mean square of
    the features of n examples. Eigenvalues of the matrix below 1e-6 of the largest have 0 for their inverse, so that
    directions in which features are all but 0 have no weight. The paper's clients send their own W_i and X_i^T X_i, of
    which its absolute aggregation law makes the same W as here of the sums. The paper then takes each client's ridge
    out again, as does the authors' code (ZHUANGHP/Analytic-federated-learning, `afl.py`), which is `ridge=0` here.
    Their layer has no bias. Where the network has one, it is that of ridge regression with an intercept: free of the
    ridge. The features then have their mean subtracted, and s is their mean variance. The uploads are those of FedCGS,
    in as many bits. The default ridge is FedCGS's, which adds it to the same matrix. Outputs are regressions of 0 and
    1, so that accuracies are comparable with other methods', but losses are not.
    """
    return _aggregate(server, Moments.of(uploads), ridge)
