"""OTFusion as MA-Echo's authors run it: FedAvg as they run it, after the clients' units are matched."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from fedfisher_core.alignment.layers import align, transports
from fedfisher_core.alignment.transport import Transport
from fedfisher_core.client.label_counts import LabelCounts
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.methods.averaging import weighted_sum
from fedfisher_core.methods.holders import class_layer, holders, mean_of_holders
from fedfisher_core.methods.method import method
from fedfisher_core.methods.requirements import require_pivot
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.models.streams import streams


def _supports(spec: ModelSpec) -> None:
    streams(spec)
    class_layer(spec)


def _require(settings: Any, clients: int) -> None:
    require_pivot(settings.pivot, clients)


@method(
    "otfusion_by_holders",
    uploads=(Weights, LabelCounts),
    reference="https://github.com/FudanVI/MAEcho",
    supports=_supports,
    require=_require,
)
def otfusion_by_holders(
    server: Server,
    uploads: Sequence[Upload],
    *,
    pivot: Annotated[NonNegativeInt, Field(description="the client that the others are aligned to, from 0")] = 0,
) -> Aggregate:
    """Match hidden units to one client's, and average as `fedavg_by_holders` does (MA-Echo's code).

    Units are compared by the distance of their incoming weights, scaled to length 1, and matched by the exact plan,
    which is a permutation. The last layer's inputs follow, and its outputs, the classes, stay. The authors' pivot is
    the first client, and the second of two.

    Args:
        server: knows the network.
        uploads: the weights w_i and the label counts.

    Returns:
        The mean of the aligned clients, with the last layer of those that hold a class.

    Raises:
        InputError: there is no client with the pivot's number.
    """
    require_pivot(pivot, len(uploads))
    layers = streams(server.spec)
    models = [upload[Weights].tensors for upload in uploads]
    target = models[pivot]
    for index, model in enumerate(models):
        if index != pivot:
            moves = transports(model, target, layers, transport=Transport(squared=False), unit_length=True)
            models[index] = align(model, layers, moves)
    mean = weighted_sum(models, [1 / len(models)] * len(models))
    return Aggregate.of(mean | mean_of_holders(models, holders(uploads), class_layer(server.spec)))
