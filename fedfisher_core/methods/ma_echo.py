"""MA-Echo: a model that differs from each client's only where that client's data do not see it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.null_space import NullSpaceProjection
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.progress import track
from fedfisher_core.methods.matching.common_optima import Iteration, common_descent, equal_weights, merge
from fedfisher_core.methods.matching.ranks import Ranks, cut, require_ranks
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import Parameters

Steps = Annotated[PositiveInt, Field(description="tau, how often global and local models move")]
StepSize = Annotated[
    float, Field(gt=0, le=1, description="eta of the global model; what is larger than 1 need not converge")
]
Penalty = Annotated[
    float, Field(gt=0, allow_inf_nan=False, description="mu, how firmly local models keep to their data")
]
LocalUpdate = Annotated[
    Literal["equation_11", "algorithm_1"],
    Field(description="whether local models move from where they were trained, or from where they are"),
]
Alpha = Annotated[
    Literal["equal", "qp"], Field(description="clients' weights: equal, or those of the common direction of descent")
]
Cap = Annotated[float, Field(gt=0, le=1, description="C, the largest weight, raised to 1 / clients (weights: qp)")]
Normalise = Annotated[bool, Field(description="whether each row of a local model moves by step_size")]
Start = Annotated[
    Literal["mean", "client", "random"],
    Field(description="of all layers but the last, which starts at the mean; client: the first, or the pivot"),
]


@method(
    "ma_echo",
    uploads=(Weights, NullSpaceProjection),
    reference="https://arxiv.org/abs/2204.12493",
    fits=require_ranks,
)
def ma_echo(
    server: Server,
    uploads: Sequence[Upload],
    *,
    steps: Steps = 50,
    step_size: StepSize = 0.8,
    penalty: Penalty = 1.0,
    local_update: LocalUpdate = "equation_11",
    weights: Alpha = "equal",
    cap: Cap = 0.5,
    normalise: Normalise = False,
    start: Start = "mean",
    ranks: Ranks = None,
) -> Aggregate:
    """Move to where each client's outputs stay what they are (Su, Li and Xue 2022, equations 7 and 11, Algorithm 1).

    Each layer is merged separately, the last included. With local models V_i that start at the clients' W_i,
    W <- W - 2 eta sum_i alpha_i (W - V_i) P_i and then V_i <- V + Norm((W - V) (I - mu / (1 + mu) P_i)). The result
    does not depend on the order of the clients, unless it starts at one of them.

    The paper has V in two ways, and the default here is its equation 11: V = W_i, so that the iteration ends at the
    minimum of sum_i alpha_i |(W - W_i) P_i|^2. In its Algorithm 1, V is the V_i before, which moves by half of its way
    to W even along P_i, where equation 8 holds it to W_i: all V_i meet W before it is there, unless mu is large. In a
    direction that one of N clients sees, W goes 2 x / (1 + x) of the way to it, x = 2 eta / N: 48 % with five clients.

    Equal weights, as the authors' code has them, are the quadratic programme's with C = 1 / N, the paper's smallest.
    The programme weighs clients layer by layer, those most whose gradients are shortest. With C = 1/2 two clients may
    have all of a layer's weight, and what the others learnt is lost there. As printed, with both, the algorithm does
    not come near the paper's numbers (the reports `ma_echo_algorithm_1` and `ma_echo_table5`). The authors' code has
    steps, eta (there without the factor 2, 1.6) and C too. Normalised steps have length eta, as in that code, not the
    paper's 1.

    With ranks, as in the paper's Table 6, the server makes each P_i anew of its leading components. Bits are those of
    the whole matrices.
    """
    return explore(
        server,
        [upload[Weights].tensors for upload in uploads],
        [cut(upload[NullSpaceProjection].tensors, ranks) for upload in uploads],
        first=0,
        start=start,
        iteration=iteration_of(steps, step_size, penalty, local_update, weights, cap, normalise),
    )


def iteration_of(
    steps: int, step_size: float, penalty: float, local_update: str, weights: str, cap: float, normalise: bool
) -> Iteration:
    """Read the iteration off a method's settings; see `ma_echo`."""
    return Iteration(
        steps=steps,
        step_size=step_size,
        penalty=penalty,
        weigh=equal_weights if weights == "equal" else common_descent(cap),
        anchored=local_update == "equation_11",
        normalise=normalise,
    )


def explore(
    server: Server,
    models: Sequence[Parameters],
    projections: Sequence[Mapping[str, Tensor]],
    *,
    first: int,
    start: Start,
    iteration: Iteration,
) -> Aggregate:
    """Merge models as MA-Echo does, from one of the starts of its section 7.3.

    Args:
        projections: P_i by layer.
        first: the client that may be started from.

    Returns:
        The global model, with the paper's objective at its start and at its end.
    """
    layers = list(projections[0])
    begin: Parameters = {}
    if start != "mean":
        drawn = models[first] if start == "client" else server.spec.initialise(server.generator)
        begin = {name: one.to(server.device) for name, one in drawn.items() if name.rpartition(".")[0] != layers[-1]}
    merged = merge(models, projections, begin, iteration, track(layers, what="layer"))
    return Aggregate.of(merged.parameters, distance_at_start=merged.distance_at_start, distance=merged.distance)
