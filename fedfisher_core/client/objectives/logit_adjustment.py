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

    With g_c = f_c - tau n_c^(-1/4), the loss is -log(exp g_y / sum_c exp g_c); the sum runs over all classes, including
    y. The margin of y over c is tau (n_y^(-1/4) - n_c^(-1/4)), as in LDAM (Cao et al. 2019). It is not the tau log pi
    of Menon et al. (2021), which adds the logarithm of a class's share. If the client has no example of class c, g_c is
    -infinity: the class is left out of the sum, and nothing lowers its output. tau = 0 is plain cross-entropy over all
    classes.
    """
    if tau == 0:
        return cross_entropies(logits, labels)
    margins = tau * torch.pow(known.label_counts.to(logits.dtype), -0.25)
    return cross_entropies(logits - margins, labels)
