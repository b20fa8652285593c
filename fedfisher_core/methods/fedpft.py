"""FedPFT: a head that is trained on features drawn from the clients' normal distributions."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.class_gaussians import FEWEST, ClassGaussians
from fedfisher_core.client.statistics.features import head_of
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.training import train
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import parameters_of
from fedfisher_core.settings import TrainSettings


@method(
    "fedpft",
    uploads=(LabelCounts, ClassGaussians),
    reference="https://arxiv.org/abs/2402.01862",
    trains=False,
)
def fedpft(
    server: Server,
    uploads: Sequence[Upload],
    *,
    epochs: Annotated[PositiveInt, Field(description="passes over the features that were drawn")] = 50,
    learning_rate: Annotated[PositiveFloat, Field(description="of SGD")] = 0.01,
    momentum: Annotated[float, Field(ge=0, lt=1, description="of SGD")] = 0.9,
    batch_size: Annotated[PositiveInt, Field(description="features a step")] = 128,
) -> Aggregate:
    """Draw as many features of each class as a client has, and train the head on those of all (Beitollahi et al. 2024).

    Each class of each client is one normal distribution, where the authors allow mixtures of several; its covariance is
    `statistics.class_gaussians.covariance`. A class of which a client has one example is left out, as by the authors.
    No client sends weights. For C classes and n features, it sends C counts and, uncompressed, 64 C n bits with
    `diagonal` covariances, 32 (C n + C) with `spherical` and 32 (C n + C n (n + 1) / 2) with `full` ones, where FedAvg
    sends 32 (C n + C). The optimiser, its rate and the number of epochs are those of FedCGS's code, which compares with
    FedPFT; training starts from the weights that clients started from.

    Raises:
        ArithmeticError: the training diverged.
    """
    network = server.network(server.initial)
    _, head = head_of(network)
    drawn = [part for upload in uploads for part in _drawn(upload, server.generator)]
    if not drawn:
        return Aggregate.of(server.initial, drawn=0.0)
    examples = Examples(torch.cat([rows for rows, _ in drawn]), torch.cat([labels for _, labels in drawn]))
    settings = TrainSettings(epochs=epochs, learning_rate=learning_rate, momentum=momentum, batch_size=batch_size)
    try:
        losses = train(head, examples, settings, generator=server.generator).epoch_losses
    except DivergedClientError as error:
        raise ArithmeticError(f"learning_rate={learning_rate:g} is too large: {error}") from error
    return Aggregate.of(parameters_of(network), drawn=float(len(examples)), loss=losses[-1])


def _drawn(upload: Upload, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    gaussians = upload[ClassGaussians]
    for label, number in enumerate(upload[LabelCounts].tensors["counts"].int().tolist()):
        if number >= FEWEST:
            rows = gaussians.draw(label, number, generator)
            yield rows, torch.full((number,), label, device=rows.device)
