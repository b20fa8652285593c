"""MOON: features close to the global network's and far from the client's own earlier one's (Li et al. 2021)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedfisher_core.client.objectives.objective import Knowledge, Known, cross_entropies, objective


@objective(
    "moon",
    reference="https://github.com/QinbinLi/MOON",
    reads=(Knowledge.WEIGHTS, Knowledge.FEATURES, Knowledge.PAST),
)
def moon(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    mu: Annotated[float, Field(ge=0, description="weight of the contrast")] = 1.0,
    temperature: Annotated[float, Field(gt=0, description="tau, by which similarities are divided")] = 0.5,
) -> Tensor:
    """MOON: cross-entropy plus mu times a contrast of features with the start's and the earlier model's.

    The contrast is -log exp(s(z, z_start)/tau) / (exp(s(z, z_start)/tau) + exp(s(z, z_before)/tau)), where s is the
    cosine (the paper's Eq. 3) and tau the temperature. Features are the inputs of the last layer. The authors add a
    projection head before it, which would make uploads larger. Before a client has taken part, its earlier model is the
    start. The contrast is then log 2 and has no gradient, so that the first round is plain. mu = 0 is plain
    cross-entropy.
    """
    start, features = known.start, known.features
    before = known.past.trained
    now = features.now
    to_start = functional.cosine_similarity(now, features.under(start)) / temperature
    to_before = to_start if before is None else functional.cosine_similarity(now, features.under(before)) / temperature
    contrast = torch.logaddexp(to_start, to_before) - to_start
    return cross_entropies(logits, labels) + mu * contrast
