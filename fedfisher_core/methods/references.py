"""Rows that one-shot methods are measured against and that no one-shot method could be."""

from collections.abc import Sequence

from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Combine, Server

_ENSEMBLE = "https://arxiv.org/abs/1902.11175"


@method("ensemble", uploads=(Weights,), reference=_ENSEMBLE, one_shot=False)
def ensemble(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models and predict the mean of their probabilities (Guha et al. 2019).

    Args:
        server: not used.
        uploads: the weights w_i.

    Returns:
        All networks.
    """
    return Aggregate(networks=tuple(upload[Weights].tensors for upload in uploads))


@method("local_mean", uploads=(Weights,), reference=_ENSEMBLE, one_shot=False)
def local_mean(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Measure every local model by itself and average the measures: what a client has without the others.

    Args:
        server: not used.
        uploads: the weights w_i.

    Returns:
        All networks.
    """
    return Aggregate(networks=tuple(upload[Weights].tensors for upload in uploads), combine=Combine.MEAN_MEASURE)


@method(
    "centralised",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/1602.05629",
    one_shot=False,
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
