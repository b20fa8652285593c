"""Softmax regression: a network that is its head."""

from torch import Tensor, nn

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Tokens
from fedfisher_core.models.spec import ModelSpec, model


@model("linear")
class SoftmaxRegression(nn.Module):
    """One linear layer, from pixels or numbers to classes; nngeometry takes a module called Linear for a layer."""

    def __init__(self, spec: ModelSpec) -> None:
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"model {spec.name!r} takes images and numbers; the data has {spec.inputs}")
        if spec.widths:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; it has no hidden layer: allowed: none")
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: images or numbers, shape (batch, ...).

        Returns:
            Shape (batch, classes).
        """
        return self.head(inputs.flatten(1))
