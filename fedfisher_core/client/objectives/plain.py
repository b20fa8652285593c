"""Cross-entropy, the default objective of clients."""

from torch import Tensor

from fedfisher_core.client.objectives.objective import Known, cross_entropies, objective


@objective("plain", reference="https://arxiv.org/abs/1602.05629")
def plain(logits: Tensor, labels: Tensor, known: Known) -> Tensor:
    """Cross-entropy (McMahan et al. 2017): -log softmax(f)_y."""
    return cross_entropies(logits, labels)
