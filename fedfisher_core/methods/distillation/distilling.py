"""What the methods share that train a network on inputs drawn like each client's own."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.distillation.pseudo_inputs import Draw, Local, distil
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions
from fedfisher_core.models.spec import parameters_of

Steps = Annotated[PositiveInt, Field(description="of Adam")]
Samples = Annotated[PositiveInt, Field(description="drawn inputs of each client in a step")]
LearningRate = Annotated[PositiveFloat, Field(description="of Adam's first step")]


def distilled(
    server: Server,
    uploads: Sequence[Upload],
    begun: Mapping[str, Tensor],
    draws: Sequence[Draw],
    *,
    steps: int,
    samples: int,
    learning_rate: float,
) -> Aggregate:
    """Minimise sum_i p_i E KL(f_i(x_i) || f(x_i)) over inputs x_i that are drawn like client i's.

    Args:
        uploads: with the weights w_i of f_i.
        begun: the network before the first step.
        draws: makes x_i, one for each upload.
        samples: inputs of each client in a step.

    Returns:
        The network after the last step, with the divergence on its inputs.
    """
    student = server.network(begun)
    clients = [
        Local(server.network(upload[Weights].tensors), draw, share)
        for upload, draw, share in zip(uploads, draws, proportions(uploads), strict=True)
    ]
    divergence = distil(
        student, clients, steps=steps, samples=samples, learning_rate=learning_rate, generator=server.generator
    )
    return Aggregate.of(parameters_of(student), steps=float(steps), divergence=divergence)
