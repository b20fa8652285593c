"""Rows that methods of one network are measured against: ensembles, which are one-shot too, and references."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Combine, Server
from fedfisher_core.methods.shared.averaging import class_proportions
from fedfisher_core.methods.shared.holders import holders, parts_of_holders
from fedfisher_core.models.spec import Parameters

_ENSEMBLE = "https://arxiv.org/abs/1902.11175"


@method("ensemble", uploads=(Weights,), reference=_ENSEMBLE, ranked=False, continues=False)
def ensemble(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models and predict the mean of their probabilities (Guha et al. 2019)."""
    return Aggregate(networks=_networks(uploads))


@method("ensemble_logits", uploads=(Weights,), reference=_ENSEMBLE, ranked=False, continues=False)
def ensemble_logits(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models and predict by the mean of their outputs before the softmax (Lin et al. 2020, teacher)."""
    return Aggregate(networks=_networks(uploads), combine=Combine.MEAN_LOGIT)


@method(
    "ensemble_by_labels",
    uploads=(Weights, LabelCounts),
    reference="https://arxiv.org/abs/2002.06440",
    ranked=False,
    continues=False,
)
def ensemble_by_labels(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models and weight their probabilities of a class by how many of its examples they saw.

    The weights n_ic / sum_j n_jc are those of FedMA's last layer (Wang et al. 2020, section 3.3). A class that no
    client holds counts equally for all.
    """
    return Aggregate(networks=_networks(uploads), weights=class_proportions(uploads))


@method(
    "ensemble_by_holders",
    uploads=(Weights, LabelCounts),
    reference="https://github.com/FudanVI/MAEcho",
    ranked=False,
    continues=False,
)
def ensemble_by_holders(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models and predict a class by the mean output of those that hold it (MA-Echo's code).

    A client holds a class with two examples of it or more. Its outputs before the softmax are masked for all other
    classes. A class that no client holds has the output 0.
    """
    weights = parts_of_holders(holders(uploads))
    return Aggregate(networks=_networks(uploads), combine=Combine.MEAN_LOGIT, weights=weights)


@method("local_mean", uploads=(Weights,), reference=_ENSEMBLE, ranked=False, continues=False)
def local_mean(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Measure every local model and average the measures: what a client has without the others."""
    return Aggregate(networks=_networks(uploads), combine=Combine.MEAN_MEASURE)


@method(
    "best_local",
    uploads=(Weights,),
    reference=_ENSEMBLE,
    ranked=False,
    # They are of one client's labels, not of all.
    log_odds=False,
    validates=lambda settings: True,
)
def best_local(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep the local model that scores best on the validation set: what aggregating must beat to be worth it.

    A server could do it in one shot, but it aggregates nothing, so it is not ranked. Of two that score the same, the
    one with more examples counts.
    """
    score = server.scorer()
    scores = [score(upload[Weights].tensors) for upload in uploads]
    best = max(range(len(uploads)), key=lambda index: (scores[index], uploads[index].num_examples))
    return Aggregate.of(uploads[best][Weights].tensors, client=float(best), validation_accuracy=scores[best])


@method(
    "centralised",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/1602.05629",
    ranked=False,
    pooled=True,
)
def centralised(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Train one model on the data of all clients, with their training settings."""
    return Aggregate.of(uploads[0][Weights].tensors)


def _networks(uploads: Sequence[Upload]) -> tuple[Parameters, ...]:
    return tuple(upload[Weights].tensors for upload in uploads)
