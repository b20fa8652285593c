"""GH-LDA: the linear one of the Gaussian heads of GH-OFL."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from fedfisher_core.client.statistics.class_sums import ClassSums
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums
from fedfisher_core.methods.shared.gaussian_heads import Moments, linear_head, require_biased_head, terms


def _aggregate(server: Server, moments: Moments, shrinkage: float) -> Aggregate:
    return Aggregate.of(linear_head(server.spec, moments, moments.within_covariance, shrinkage=shrinkage))


def _of_sums(server: Server, sums: Sums, *, shrinkage: float) -> Aggregate:
    return _aggregate(server, Moments.of_sums(sums), shrinkage)


@method(
    "gh_lda",
    uploads=(LabelCounts, ClassSums, Gram),
    reference="https://arxiv.org/abs/2602.01186",
    trains=False,
    supports=require_biased_head,
    sums=Summation(terms, _of_sums),
)
def gh_lda(
    server: Server,
    uploads: Sequence[Upload],
    *,
    shrinkage: Annotated[
        float, Field(ge=0, le=1, description="part of the mean variance in all variances; 1: distances to the means")
    ] = 0.05,
) -> Aggregate:
    """Classify features by normal distributions of the covariance within classes (Turazza et al. 2026).

    Weights are S^-1 mu_c and biases log(n_c / n) - mu_c^T S^-1 mu_c / 2, see `linear_head`. The uploads are those of
    FedCGS, in as many bits. There are two differences: the covariance S is that around the means of the classes, and it
    is shrunk to (1 - a) S + a tr(S) / n I. Of the authors' other closed forms, GH-NB has variances and GH-QDA a
    covariance of each class. Their logits have squares of the features, for which a linear layer has no weights.
    """
    return _aggregate(server, Moments.of(uploads), shrinkage)
