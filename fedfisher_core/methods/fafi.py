"""FAFI: an ensemble of features, which predicts by the clients' mean prototypes."""

from collections.abc import Sequence

import torch

from fedfisher_core.client.statistics.features import require_class_rows
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Combine, Server


@method(
    "fafi",
    uploads=(Weights,),
    reference="https://github.com/zenghui9977/FAFI_ICML25",
    ranked=False,
    continues=False,
    supports=require_class_rows,
)
def fafi(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Keep all local models, and multiply their mean feature with their mean prototypes (Zeng et al. 2025).

    A feature is what the last layer reads. The mean over clients is weighted by their numbers of examples, and then
    normalised. Prototypes are the last layer's weights; their mean is plain, and the bias of the layer is not used. The
    method is meant for clients that are trained with the objective `prototypes`. With any other objective it is
    features times mean weights.
    """
    sizes = torch.tensor([float(upload.num_examples) for upload in uploads], device=server.device)
    return Aggregate(
        networks=tuple(upload[Weights].tensors for upload in uploads),
        combine=Combine.MEAN_FEATURE,
        combiner={"shares": sizes / sizes.sum()},
    )
