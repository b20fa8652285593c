"""Rows that methods of one network are measured against: ensembles, which are one shot too, and references."""

from collections.abc import Sequence

from fedfisher_core.client.label_counts import LabelCounts
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import class_proportions
from fedfisher_core.methods.holders import holders, parts_of_holders
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Combine, Server
from fedfisher_core.models.spec import Parameters

_ENSEMBLE = "https://arxiv.org/abs/1902.11175"


@method("ensemble", uploads=(Weights,), reference=_ENSEMBLE, ranked=False, continues=False)
def ensemble(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models and predict the mean of their probabilities (Guha et al. 2019).

    Args:
        server: not used.
        uploads: the weights w_i.

    Returns:
        All networks.
    """
    return Aggregate(networks=_networks(uploads))


@method("ensemble_logits", uploads=(Weights,), reference=_ENSEMBLE, ranked=False, continues=False)
def ensemble_logits(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models and predict by the mean of their outputs before the softmax (Lin et al. 2020, as teacher).

    Args:
        server: not used.
        uploads: the weights w_i.

    Returns:
        All networks.
    """
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

    The weights are those of FedMA's last layer (Wang et al. 2020, section 3.3). A class that nobody holds counts
    equally for all.

    Args:
        server: not used.
        uploads: the weights w_i and the label counts n_ic.

    Returns:
        All networks, with weights n_ic / sum_j n_jc.
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

    Outputs before the softmax of classes that a client does not hold, with two examples or more, are masked. A class
    that nobody holds has the output 0.

    Args:
        server: not used.
        uploads: the weights w_i and the label counts.

    Returns:
        All networks, with equal weights of the holders of each class.
    """
    weights = parts_of_holders(holders(uploads))
    return Aggregate(networks=_networks(uploads), combine=Combine.MEAN_LOGIT, weights=weights)


@method("local_mean", uploads=(Weights,), reference=_ENSEMBLE, ranked=False, continues=False)
def local_mean(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Measure every local model by itself and average the measures: what a client has without the others.

    Args:
        server: not used.
        uploads: the weights w_i.

    Returns:
        All networks.
    """
    return Aggregate(networks=_networks(uploads), combine=Combine.MEAN_MEASURE)


@method(
    "best_local",
    uploads=(Weights,),
    reference=_ENSEMBLE,
    ranked=False,
    validates=lambda settings: True,
)
def best_local(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep the local model that scores best on the validation set: what aggregating must beat to be worth it.

    It is no mean of anything, so that it is told apart from the one-shot methods, though a server could do it.

    Args:
        server: scores the models.
        uploads: the weights w_i.

    Returns:
        One network, that of the client with more examples where two score the same.
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
    """Train one model on the data of all clients, with their training settings.

    Args:
        server: not used.
        uploads: of the one client that holds all data.

    Returns:
        Its network.
    """
    return Aggregate.of(uploads[0][Weights].tensors)


def _networks(uploads: Sequence[Upload]) -> tuple[Parameters, ...]:
    return tuple(upload[Weights].tensors for upload in uploads)
