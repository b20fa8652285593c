"""FedLC: cross-entropy of logits that are calibrated by the client's own label counts (Zhang et al. 2022)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedfisher_core.client.objectives.objective import Knowledge, Known, cross_entropies, objective


@objective("logit_adjustment", reference="https://arxiv.org/abs/2209.00189", reads=(Knowledge.LABEL_COUNTS,))
def logit_adjustment(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    tau: Annotated[float, Field(ge=0, description="strength of the margins between frequent and rare classes")] = 1.0,
) -> Tensor:
    """FedLC: cross-entropy of logits less tau n_c^(-1/4), where the client holds n_c examples of class c.

    With g_c = f_c - tau n_c^(-1/4), the loss is -log(exp g_y / sum_c exp g_c); the sum runs over all classes, y among
    them. The margin of y over c is tau (n_y^(-1/4) - n_c^(-1/4)), as in LDAM (Cao et al. 2019). It is not tau log pi
    of Menon et al. (2021), which adds the logarithm of a class's share. A class of which the client holds nothing has
    g_c = -infinity: it is left out of the sum, and nothing pushes its output down.

    Args:
        logits: f, shape (batch, classes).
        labels: y, int64, shape (batch,); each of a class that the client holds.
        known: the client's label counts.
        tau: 0 is plain cross-entropy, also of classes that the client lacks.

    Returns:
        The losses, shape (batch,), in nats.
    """
    if tau == 0:
        return cross_entropies(logits, labels)
    margins = tau * torch.pow(known.label_counts.to(logits.dtype), -0.25)
    return cross_entropies(logits - margins, labels)
