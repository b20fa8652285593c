"""MA-Echo as its authors' code has it."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, PositiveInt

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.null_space import OfficialProjection
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.matching.common_optima import merge_official
from fedfisher_core.methods.matching.ranks import Ranks, cut_complements, require_ranks
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.holders import class_layer, holders, mean_of_holders
from fedfisher_core.models.spec import ModelSpec


def _supports(spec: ModelSpec) -> None:
    class_layer(spec)


@method(
    "ma_echo_official",
    uploads=(Weights, OfficialProjection, LabelCounts),
    reference="https://github.com/FudanVI/MAEcho",
    supports=_supports,
    fits=require_ranks,
)
def ma_echo_official(
    server: Server,
    uploads: Sequence[Upload],
    *,
    steps: Annotated[PositiveInt, Field(description="how often global and local models move")] = 50,
    step_size: Annotated[
        float, Field(gt=0, lt=2, description="eta of global and local models; from 2 on nothing converges")
    ] = 1.6,
    normalise: Annotated[bool, Field(description="whether each row of a local model moves by step_size")] = False,
    ranks: Ranks = None,
) -> Aggregate:
    """Iterate as the authors' code does, which differs from their paper, and average the local models.

    From the mean W of the clients' W_i, W <- W - eta / N sum_i (W - V_i) (I - Q_i) and then
    V_i <- V_i + eta Norm((W - V_i) Q_i), with V_i = W_i at first and with Q_i for the paper's I - P_i. Local models
    move as far as W and only where their data do not see it (the paper's mu without bound), clients weigh the same, and
    the last layer does not take part. For each class, its row there is the mean over the clients that hold two examples
    of it or more, and 0, with its bias, where there are none. A row whose step is exactly 0 stays, where the authors'
    code divides by 0. Ranks are of I - Q_i, see `ma_echo`; the last is of the layer that does not take part.
    """
    models = [upload[Weights].tensors for upload in uploads]
    held = holders(uploads)
    last = class_layer(server.spec)
    hidden = [layer for layer in uploads[0][OfficialProjection].tensors if layer != last]
    parameters = merge_official(
        models,
        [cut_complements(upload[OfficialProjection].tensors, ranks) for upload in uploads],
        hidden,
        steps=steps,
        step_size=step_size,
        normalise=normalise,
    )
    parameters |= mean_of_holders(models, held, last)
    return Aggregate.of({name: parameters[name] for name in models[0]}, classes_of_nobody=float((~held).all(0).sum()))
