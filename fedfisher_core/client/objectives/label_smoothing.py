"""Cross-entropy with smoothed labels (Szegedy et al. 2016)."""

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedfisher_core.client.objectives.objective import Known, objective


@objective("label_smoothing", reference="https://arxiv.org/abs/1512.00567")
def label_smoothing(
    logits: Tensor,
    labels: Tensor,
    known: Known,
    *,
    amount: Annotated[float, Field(ge=0, lt=1, description="part of a label that is spread over all classes")] = 0.1,
) -> Tensor:
    """Cross-entropy with labels that are partly spread over all classes.

    With p = softmax(f) and K classes, the loss is -(1 - amount) log p_y - amount / K sum_c log p_c. amount = 0 is plain
    cross-entropy.
    """
    return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=amount)
