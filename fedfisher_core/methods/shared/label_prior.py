"""Prior correction: outputs of a merged network are moved by the logarithms of the clients' shares of labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.methods.shared.holders import class_layer
from fedfisher_core.models.spec import ModelSpec


def with_label_prior(
    spec: ModelSpec,
    made: Aggregate,
    uploads: Sequence[Upload],
    *,
    label_prior: Annotated[
        float,
        Field(
            ge=-10,
            le=10,
            description="tau: tau log(n_c / n) is added to the output of class c; -1 predicts as if classes were "
            "equally frequent",
        ),
    ] = 0.0,
) -> Aggregate:
    """Add tau log(n_c / n) to the biases of the layer of classes (Menon et al. 2021, equation 9, with -tau).

    A network that learned by cross-entropy has outputs that hold the log-shares of labels; tau = -1 takes those of all
    clients out again. The authors' code (google-research/google-research, `logit_adjustment`) subtracts in evaluation
    alone. Here the weights themselves are moved, so that neither a further round nor a server optimiser may follow. A
    class that no client has counts as one example.

    Args:
        spec: the clients' network, which has a bias, see `require_label_prior`.
        uploads: with label counts n_ic, whose sums over clients are n_c.
    """
    counts = torch.stack([upload[LabelCounts].tensors["counts"] for upload in uploads]).sum(0, dtype=torch.float64)
    added = label_prior * (counts.clamp(min=1) / counts.sum()).log()
    bias = f"{class_layer(spec)}.bias"
    networks = tuple(one | {bias: (one[bias] + added).float()} for one in made.networks)
    return replace(made, networks=networks)


def require_label_prior(spec: ModelSpec) -> None:
    """Refuse a network that has no bias for each class.

    Raises:
        UnsupportedLayerError: the last layer has other rows than one a class.
        InputError: it has no bias.
    """
    layer = class_layer(spec)
    if f"{layer}.bias" not in spec.shapes():
        raise InputError(f"label_prior moves the bias of layer {layer!r}, and model.bias=false; allowed: true")
