"""A network of another package."""

from torch import Tensor, nn
from torch.nn import functional

from fedfisher.extending import ModelSpec, model


@model("narrow")
class Narrow(nn.Module):
    """One hidden layer."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.hidden = nn.Linear(spec.inputs.size, 5, bias=spec.bias)
        self.head = nn.Linear(5, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(functional.relu(self.hidden(inputs.flatten(1))))
