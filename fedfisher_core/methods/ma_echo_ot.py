"""MA-Echo after OTFusion's matching of the clients' hidden units."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from fedfisher_core.client.statistics.null_space import NullSpaceProjection
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.ma_echo import (
    Alpha,
    Cap,
    LocalUpdate,
    Normalise,
    Penalty,
    Start,
    Steps,
    StepSize,
    explore,
    iteration_of,
)
from fedfisher_core.methods.matching.layers import align, align_input_matrix, incoming, transports
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.selection import require_pivot
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.models.streams import streams


def _supports(spec: ModelSpec) -> None:
    streams(spec)


def _require(settings: Any, clients: int) -> None:
    require_pivot(settings.pivot, clients)


@method(
    "ma_echo_ot",
    uploads=(Weights, NullSpaceProjection),
    reference="https://arxiv.org/abs/2204.12493",
    supports=_supports,
    require=_require,
)
def ma_echo_ot(
    server: Server,
    uploads: Sequence[Upload],
    *,
    pivot: Annotated[NonNegativeInt, Field(description="the client that the others are aligned to, from 0")] = 0,
    steps: Steps = 50,
    step_size: StepSize = 0.8,
    penalty: Penalty = 1.0,
    local_update: LocalUpdate = "equation_11",
    weights: Alpha = "equal",
    cap: Cap = 0.5,
    normalise: Normalise = False,
    start: Start = "mean",
) -> Aggregate:
    """Match hidden units to one client's by optimal transport of weights, and go on as MA-Echo (section 5.3).

    The exact plans between equal numbers of units are permutations T. A layer's inputs, and with them its
    projection, follow the units of the layer before: P -> T^T P T.

    Raises:
        InputError: the pivot is not the number of a client.
    """
    require_pivot(pivot, len(uploads))
    layers = streams(server.spec)
    models = [upload[Weights].tensors for upload in uploads]
    projections = [upload[NullSpaceProjection].tensors for upload in uploads]
    target = models[pivot]
    for index, model in enumerate(models):
        if index == pivot:
            continue
        moves = transports(model, target, layers)
        models[index] = align(model, layers, moves)
        before = {layer.name: one for layer, one in zip(layers, incoming(layers, moves), strict=True)}
        moved = {one.name: align_input_matrix(projections[index][one.name], one, before[one.name]) for one in layers}
        projections[index] = {name: moved[name] for name in projections[index]}
    return explore(
        server,
        models,
        projections,
        first=pivot,
        start=start,
        iteration=iteration_of(steps, step_size, penalty, local_update, weights, cap, normalise),
    )
