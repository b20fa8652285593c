"""Cross-entropy: what clients minimise unless they are told otherwise."""

from torch import Tensor

from fedfisher_core.client.objectives.objective import Known, cross_entropies, objective


@objective("plain", reference="https://arxiv.org/abs/1602.05629")
def plain(logits: Tensor, labels: Tensor, known: Known) -> Tensor:
    """Cross-entropy (McMahan et al. 2017): -log softmax(f)_y.

    Args:
        logits: f, shape (batch, classes).
        labels: y, int64, shape (batch,).
        known: nothing is read of it.

    Returns:
        The losses, shape (batch,), in nats.
    """
    return cross_entropies(logits, labels)
