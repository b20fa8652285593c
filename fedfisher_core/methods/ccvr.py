"""CCVR: the mean of the clients' networks, with a head that is trained on features drawn class by class."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.class_gaussians import FEWEST
from fedfisher_core.client.statistics.feature_gaussians import FeatureGaussians
from fedfisher_core.client.statistics.features import last_linear
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.training import train
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.models.spec import parameters_of
from fedfisher_core.settings import TrainSettings


@method(
    "ccvr",
    uploads=(Weights, LabelCounts, FeatureGaussians),
    reference="https://arxiv.org/abs/2106.05001",
    # The head belongs to the features as they are.
    merges=False,
    # The head is trained on classes that are equally frequent.
    log_odds=False,
)
def ccvr(
    server: Server,
    uploads: Sequence[Upload],
    *,
    draws: Annotated[PositiveInt, Field(description="features that are drawn of each class")] = 2000,
    epochs: Annotated[PositiveInt, Field(description="passes over the features that were drawn")] = 10,
    learning_rate: Annotated[PositiveFloat, Field(description="of SGD")] = 0.001,
    momentum: Annotated[float, Field(ge=0, lt=1, description="of SGD")] = 0.9,
    batch_size: Annotated[PositiveInt, Field(description="features a step")] = 64,
) -> Aggregate:
    """Average networks, and train the mean's head on as many drawn features of each class (Luo et al. 2021).

    The features of class c have the mean mu_c = sum_i n_ic mu_ic / n_c and the covariance
    sum_i n_ic (S_ic + mu_ic mu_ic^T) / n_c - mu_c mu_c^T of all clients together (the paper's equations 3 and 4, whose
    S_ic are unbiased and whose divisors are smaller by one). The paper's clients compute them with the merged network,
    which takes a second upload. Here each client has its own network, so that all is sent at once, and features that
    training moved apart are pooled all the same. Covariances are `statistics.feature_gaussians.covariance`; the paper's
    are full. A class of which a client has one example is left out there. Number of draws, epochs, rate and batch
    follow an implementation that is public (smduan/Fed-CCVR, `conf.py`); the paper draws 2,000 features of CIFAR-10's
    classes. The same number for each class makes the head one for equally frequent classes. Where no client has two
    examples of a class, nothing is drawn, and the mean itself is returned, which is FedAvg's network.

    Raises:
        ArithmeticError: the training diverged.
    """
    network = server.network(mean_parameters(uploads))
    _, head = last_linear(network)
    gaussians, counts = pooled(uploads)
    held = [label for label, number in enumerate(counts.tolist()) if number > 0]
    if not held:
        return Aggregate.of(parameters_of(network), drawn=0.0)
    features = torch.cat([gaussians.draw(label, draws, server.generator) for label in held])
    labels = torch.tensor(held, device=features.device).repeat_interleave(draws)
    settings = TrainSettings(epochs=epochs, learning_rate=learning_rate, momentum=momentum, batch_size=batch_size)
    try:
        losses = train(head, Examples(features, labels), settings, generator=server.generator).epoch_losses
    except DivergedClientError as error:
        raise ArithmeticError(f"learning_rate={learning_rate:g} is too large: {error}") from error
    return Aggregate.of(parameters_of(network), drawn=float(len(features)), loss=losses[-1])


def pooled(uploads: Sequence[Upload]) -> tuple[FeatureGaussians, Tensor]:
    """The normal distributions of the classes of all clients together, and the number of examples behind each.

    Classes with fewer examples at a client than it sends are left out of its part.
    """
    counts = torch.stack([upload[LabelCounts].tensors["counts"] for upload in uploads]).double()
    counts = torch.where(counts < FEWEST, 0, counts)
    parts = counts / counts.sum(0).clamp(min=1)
    sent = [{name: one.double() for name, one in upload[FeatureGaussians].tensors.items()} for upload in uploads]
    means = torch.stack([one["means"] for one in sent])
    mean = torch.einsum("ic,icf->cf", parts, means)
    apart = means - mean
    if "covariances" in sent[0]:
        row, column = torch.tril_indices(means.shape[2], means.shape[2])
        spread = torch.stack([one["covariances"] for one in sent]) + apart[:, :, row] * apart[:, :, column]
        tensors = {"means": mean, "covariances": torch.einsum("ic,icf->cf", parts, spread)}
    else:
        # A rounded deviation may have either sign.
        variances = torch.stack([one["deviations"] for one in sent]).square()
        spread = variances + (apart.square() if variances.ndim == 3 else apart.square().mean(2))
        tensors = {"means": mean, "deviations": torch.einsum("ic,ic...->c...", parts, spread).sqrt()}
    return FeatureGaussians({name: one.float() for name, one in tensors.items()}), counts.sum(0)
