"""FedAvg as MA-Echo's authors run it: clients weigh the same, and in the last layer those that hold a class."""

from collections.abc import Sequence

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import weighted_sum
from fedfisher_core.methods.shared.holders import class_layer, holders, mean_of_holders
from fedfisher_core.models.spec import ModelSpec


def _supports(spec: ModelSpec) -> None:
    class_layer(spec)


@method(
    "fedavg_by_holders",
    uploads=(Weights, LabelCounts),
    reference="https://github.com/FudanVI/MAEcho",
    supports=_supports,
)
def fedavg_by_holders(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Average all layers alike, and each class's row of the last over the clients that hold it (MA-Echo's code).

    The last layer is the last that is called. A client holds a class with two examples of it or more. Rows of classes
    that no client holds are 0.
    """
    models = [upload[Weights].tensors for upload in uploads]
    mean = weighted_sum(models, [1 / len(models)] * len(models))
    return Aggregate.of(mean | mean_of_holders(models, holders(uploads), class_layer(server.spec)))
