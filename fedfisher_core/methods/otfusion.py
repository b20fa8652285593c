"""OTFusion: the mean of the clients' weights after their hidden units are matched by optimal transport."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.matching.layers import align, transports
from fedfisher_core.methods.matching.transport import Normalisation, Transport, activation_distances
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions, weighted_sum
from fedfisher_core.methods.shared.selection import best_on_validation, require_pivot
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.models.streams import StreamLayer, streams

Tried = Annotated[tuple[bool, ...], Field(min_length=1, max_length=2)]
_BOTH = (True, False)


def _supports(spec: ModelSpec) -> None:
    streams(spec)


def _validates(settings: Any) -> bool:
    candidates = len(settings.normalisation) * len(settings.correction) * len(settings.past_correction)
    return settings.ground_metric == "activations" or candidates > 1


def _require(settings: Any, clients: int) -> None:
    require_pivot(settings.pivot, clients)


@method(
    "otfusion",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/1910.05653",
    supports=_supports,
    validates=_validates,
    require=_require,
)
def otfusion(
    server: Server,
    uploads: Sequence[Upload],
    *,
    ground_metric: Annotated[
        Literal["weights", "activations"],
        Field(description="what units are compared by; activations on the server's validation images"),
    ] = "weights",
    solver: Annotated[Literal["exact", "sinkhorn"], Field(description="of the transport problem")] = "exact",
    reg: Annotated[PositiveFloat, Field(description="weight of the entropy (solver: sinkhorn)")] = 0.01,
    iterations: Annotated[PositiveInt, Field(description="most iterations (solver: sinkhorn)")] = 1000,
    squared: Annotated[bool, Field(description="whether distances are squared")] = True,
    normalisation: Annotated[
        tuple[Normalisation, ...],
        Field(min_length=1, max_length=5, description="of the ground metric; of several, the best is kept"),
    ] = ("none",),
    correction: Annotated[
        Tried, Field(description="whether plans are scaled to permutations; of several, the best is kept")
    ] = _BOTH,
    past_correction: Annotated[
        Tried, Field(description="whether a layer's inputs are aligned too; of several, the best is kept")
    ] = _BOTH,
    pivot: Annotated[NonNegativeInt, Field(description="the client that the others are aligned to, from 0")] = 0,
    activation_samples: Annotated[
        PositiveInt, Field(description="most validation images (ground_metric: activations)")
    ] = 200,
    official_class_transport: Annotated[
        bool, Field(description="also transport the classes, which FedFisher's code does by mistake")
    ] = False,
) -> Aggregate:
    """Match the hidden units of all clients to one client's, and average (Singh and Jaggi 2020, algorithm 1).

    The original fuses two networks. As in the FedFisher paper, every client is aligned to one pivot, here the first
    unless set, and settings with several values are chosen on the validation set: both corrections by default, as in
    the paper's code. The workshop paper chose correction and normalisation. The result,
    p_pivot w_pivot + sum_i p_i T^T w_i T', does not depend on the order of the other clients. Clients upload only
    weights, so activations are computed on the server's validation images, with or without a selection.

    Without `correction`, as in the authors' code, each aligned layer is divided by its number of units, so that hardly
    more than p_pivot w_pivot is left of the mean; without biases, that predicts as the pivot alone does. Such a
    candidate is selected where the pivot beats the mean of all clients, and nothing is fused: `details` has the choice.

    The last layer's outputs, the classes, do not move. Its columns follow the units that it reads with either
    value of `past_correction`, as in the authors' code.

    Raises:
        InputError: the pivot is not the number of a client, or there is no validation set where one is needed.
    """
    require_pivot(pivot, len(uploads))
    layers = streams(server.spec)
    clients = [upload[Weights].tensors for upload in uploads]
    others = [index for index in range(len(clients)) if index != pivot]
    # The authors' code for two networks always aligns the last layer's inputs; FedFisher's treats it as any other.
    kept = [one.name for one in layers if one.writes is not None or official_class_transport]
    distances = {}
    if ground_metric == "activations":
        target, inputs = server.network(clients[pivot]), server.validation.inputs[:activation_samples]
        distances = {
            index: activation_distances(server.network(clients[index]), target, inputs, layers) for index in others
        }

    def candidates() -> Iterator[Aggregate]:
        for normalised, scaled in product(normalisation, correction):
            moves = {
                index: transports(
                    clients[index],
                    clients[pivot],
                    layers,
                    transport=Transport(reg if solver == "sinkhorn" else None, iterations, squared, normalised),
                    distances=distances.get(index),
                    correction=scaled,
                    outputs=official_class_transport,
                )
                for index in others
            }
            details = _describe(list(moves.values()), layers, scaled=scaled) | {f"normalisation_{normalised}": 1.0}
            for past in past_correction:
                aligned = list(clients)
                for index, moved in moves.items():
                    aligned[index] = align(clients[index], layers, moved, in_place=[] if past else kept)
                mean = weighted_sum(aligned, proportions(uploads))
                yield Aggregate.of(mean, correction=float(scaled), past_correction=float(past), **details)

    return best_on_validation(server, candidates())


def _describe(moves: Sequence[Sequence[Tensor]], layers: Sequence[StreamLayer], *, scaled: bool) -> dict[str, float]:
    """What part of the hidden units' mass moves to another unit, and how far a unit's mass is from 1 at most."""
    plans = [
        one if scaled else one * len(one)
        for client in moves
        for layer, one in zip(layers, client, strict=True)
        if layer.writes is not None
    ]
    if not plans:
        return {"moved_units": 0.0, "mass_error": 0.0}
    stayed = sum(float(plan.trace()) for plan in plans) / sum(map(len, plans))
    return {
        "moved_units": max(0.0, 1 - stayed),
        "mass_error": max(float((plan.sum(1) - 1).abs().max()) for plan in plans),
    }
