"""FedSGD: one step of gradient descent on all clients' data a round (McMahan et al. 2017)."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server_optimisers.optimiser import Step, server_optimiser
from fedfisher_core.settings import TrainSettings


def _require_one_full_step(train: TrainSettings, examples: int | None) -> None:
    """Refuse all but one step of plain descent on all of a client's examples."""
    for key, value, allowed in (("steps", train.steps, 1), ("momentum", train.momentum, 0.0)):
        if value != allowed:
            extra = ", and train.epochs=null" if key == "steps" and train.epochs is not None else ""
            raise InputError(f"train.{key}={value} with rounds.server_optimiser='fedsgd'; allowed: {allowed:g}{extra}")
    if examples is None:
        raise InputError(
            "rounds.server_optimiser='fedsgd' needs to know how much a client holds, but the data set is not here yet; "
            "fetch it first, see `fedfisher data fetch --help`"
        )
    if train.batch_size < examples:
        raise InputError(
            f"train.batch_size={train.batch_size} with rounds.server_optimiser='fedsgd', whose batch is all that a "
            f"client holds; allowed: {examples} or more, the examples of all"
        )


@server_optimiser("fedsgd", reference="https://arxiv.org/abs/1602.05629", require=_require_one_full_step)
def fedsgd(
    change: Tensor,
    moments: Mapping[str, Tensor],
    *,
    learning_rate: Annotated[float, Field(gt=0, description="as a multiple of the clients' learning rate")] = 1.0,
) -> Step:
    """Step against the mean gradient; each client takes one step with all of its examples, and no other is allowed.

    With clients weighted by their examples, as FedAvg weights them, this is gradient descent on all data. The change
    Delta is minus the clients' learning rate times the mean gradient.
    """
    return learning_rate * change, {}
