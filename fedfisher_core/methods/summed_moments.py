"""FedAvg's network, trained on inputs that the server draws class by class from sums over all clients."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional

from fedfisher_core.client.statistics.class_gaussians import FEWEST
from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.input_sums import InputSums
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.progress import track
from fedfisher_core.methods.distillation.pseudo_inputs import labelled_mixture
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums, proportions, weighted_sum, weights_term
from fedfisher_core.models.spec import Parameters, parameters_of


def _terms(upload: Upload) -> dict[str, Parameters]:
    # In a secure sum, a large client counts as one with fewer examples, in counts as in moments.
    counts = upload[LabelCounts].tensors["counts"].double()
    moments = {name: tensor.double() for name, tensor in upload[InputSums].tensors.items()}
    return {**weights_term(upload), "counts": {"counts": counts / counts.sum()}, "moments": moments}


def _of_sums(server: Server, sums: Sums, **settings: Any) -> Aggregate:
    counts = sums.totals["counts"]["counts"]
    weights = {name: tensor.float() for name, tensor in sums.mean("weights").items()}
    return _train(server, weights, counts, sums.mean("moments"), **settings)


def class_moments(counts: Tensor, moments: Parameters) -> ClassMoments:
    """Make each class's mean and covariance of sums over all examples.

    Args:
        counts: n_c, examples of each class; a class with fewer than two is left out.
        moments: the tensors of `InputSums`, means over all examples.

    Raises:
        InputError: no class has two examples.
    """
    size = moments["sums"].shape[1]
    total = counts.sum()
    used = torch.where(counts.round() >= FEWEST, counts, 0)
    if not used.any():
        raise InputError(
            f"all clients together have {counts.round().int().tolist()} examples of the classes; allowed: {FEWEST} or "
            "more of one class"
        )
    shares = used / used.sum()
    across, down = torch.triu_indices(size, size, device=counts.device)
    means, rows = torch.zeros_like(moments["sums"]), torch.zeros(len(counts), size, size).to(moments["sums"])
    for label in used.nonzero().flatten().tolist():
        means[label] = moments["sums"][label] * total / counts[label]
        second = means.new_zeros(size, size)
        second[across, down] = second[down, across] = moments["products"][label] * total / counts[label]
        values, vectors = torch.linalg.eigh(second - torch.outer(means[label], means[label]))
        # The symmetric root: unlike eigenvectors, it has no sign that rounding could turn.
        rows[label] = (vectors * (shares[label] * values.clamp(min=0)).sqrt()) @ vectors.T
    tensors = {
        "shares": shares,
        "means": means,
        "directions": rows.flatten(0, 1),
        "owners": torch.arange(len(counts), device=counts.device).repeat_interleave(size),
        "deviations": means.new_zeros(size),
        "residuals": moments["squares"].clamp(min=0).sqrt(),
    }
    return ClassMoments({name: tensor.float() for name, tensor in tensors.items()})


def _train(
    server: Server,
    weights: Parameters,
    counts: Tensor,
    moments: Parameters,
    *,
    steps: int,
    samples: int,
    learning_rate: float,
) -> Aggregate:
    draw = labelled_mixture(class_moments(counts, moments), server.spec.inputs.shape)
    network = server.network(weights)
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in track(range(steps), what="step"):
        inputs, labels = draw(samples, server.generator)
        optimiser.zero_grad()
        loss = functional.cross_entropy(network(inputs), labels)
        loss.backward()
        optimiser.step()
        schedule.step()
    return Aggregate.of(parameters_of(network), steps=float(steps), loss=loss.item())


@method(
    "summed_moments",
    uploads=(Weights, LabelCounts, InputSums),
    reference="https://arxiv.org/abs/2503.06962",
    sums=Summation(_terms, _of_sums),
    merges=False,
)
def summed_moments(
    server: Server,
    uploads: Sequence[Upload],
    *,
    steps: Annotated[PositiveInt, Field(description="of Adam")] = 1200,
    samples: Annotated[PositiveInt, Field(description="drawn inputs in a step")] = 320,
    learning_rate: Annotated[PositiveFloat, Field(description="of Adam's first step")] = 1e-3,
) -> Aggregate:
    """Train FedAvg's network on inputs drawn from N(mu_c, Sigma_c), with their class c as the label.

    mu_c and Sigma_c are those of the low frequencies of all clients' inputs of class c, and c is drawn by the
    clients' label counts. All of them follow from sums over clients, so that secure sums are enough. Other frequencies
    get independent noise of their size. FedCGS makes a head of such sums of features; here they are of inputs,
    and make a network.

    Returns:
        The network after the last step, with the cross-entropy on its inputs.
    """
    shares = proportions(uploads)
    weights = weighted_sum(Column(uploads, lambda upload: upload[Weights].tensors), shares)
    counts = torch.stack([upload[LabelCounts].tensors["counts"] for upload in uploads]).double().sum(0)
    moments = weighted_sum(
        Column(uploads, lambda upload: {name: one.double() for name, one in upload[InputSums].tensors.items()}), shares
    )
    return _train(server, weights, counts, moments, steps=steps, samples=samples, learning_rate=learning_rate)
