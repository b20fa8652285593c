"""A small recurrent network on sequences of tokens: one layer of gated recurrent units."""

from torch import Tensor, nn

from fedfisher_core.layouts import require_tokens
from fedfisher_core.models.spec import ModelSpec, model


@model("gru")
class GRU(nn.Module):
    """Embeddings of 16 numbers, 128 gated recurrent units, and a linear layer on their last state."""

    def __init__(self, spec: ModelSpec) -> None:
        tokens = require_tokens(spec.inputs, f"model {spec.name!r}")
        super().__init__()
        embedded, units = spec.widths_or((16, 128))
        self.embedding = nn.Embedding(tokens.vocabulary, embedded)
        self.gru = nn.GRU(embedded, units, bias=spec.bias, batch_first=True)
        self.head = nn.Linear(units, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: tokens, shape (batch, length).

        Returns:
            Shape (batch, classes).
        """
        states, _ = self.gru(self.embedding(inputs))
        return self.head(states[:, -1])
