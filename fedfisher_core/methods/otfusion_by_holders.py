"""OTFusion as MA-Echo's authors run it: their FedAvg, after the clients' units are matched."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.matching.layers import align, transports
from fedfisher_core.methods.matching.transport import Transport
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import weighted_sum
from fedfisher_core.methods.shared.holders import class_layer, holders, mean_of_holders
from fedfisher_core.methods.shared.selection import require_pivot
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
    which is a permutation. The inputs of the last layer that is called follow, and its outputs, the classes, do not
    move. The authors' pivot is the first client, and the second of two.

    Raises:
        InputError: the pivot is not the number of a client.
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
