"""FedRS: cross-entropy in which outputs of classes that the client lacks are scaled down (Li and Zhan 2021)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.objectives.objective import Knowledge, Known, cross_entropies, objective


@objective("restricted_softmax", reference="https://doi.org/10.1145/3447548.3467254", reads=(Knowledge.LABEL_COUNTS,))
def restricted_softmax(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    alpha: Annotated[
        float, Field(ge=0, le=1, description="factor of the outputs of classes that a client lacks")
    ] = 0.5,
) -> Tensor:
    """FedRS: cross-entropy of logits that are scaled by alpha where the client holds no example of the class.

    With s_c = 1 for classes that the client holds and s_c = alpha for the others, the loss is
    -log(exp(s_y f_y) / sum_c exp(s_c f_c)). The scale applies to a logit with its bias. alpha = 1 is plain
    cross-entropy.
    """
    scales = torch.where(known.label_counts > 0, 1.0, alpha).to(logits.dtype)
    return cross_entropies(logits * scales, labels)
