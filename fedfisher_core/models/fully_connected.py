"""Networks of linear layers: softmax regression, and the network of PFNM and MA-Echo."""

from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec, model


@model("linear")
class SoftmaxRegression(nn.Module):
    """One linear layer, from pixels or numbers to classes; nngeometry would take a module called Linear for a layer."""

    def __init__(self, spec: ModelSpec) -> None:
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"model {spec.name!r} takes images and numbers; the data has {spec.inputs}")
        if spec.widths:
            raise InputError(f"model {spec.name!r}: widths={spec.widths}; it has no hidden layer: allowed: none")
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of images or numbers of shape (batch, ...)."""
        return self.head(inputs.flatten(1))


@model("mlp")
class MLP(nn.Module):
    """Inputs - 400 - 200 - 100 - classes, with ReLU."""

    def __init__(self, spec: ModelSpec) -> None:
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"model {spec.name!r} takes images and numbers; the data has {spec.inputs}")
        super().__init__()
        first, second, third = spec.widths_or((400, 200, 100))
        self.fc1 = nn.Linear(spec.inputs.size, first, bias=spec.bias)
        self.fc2 = nn.Linear(first, second, bias=spec.bias)
        self.fc3 = nn.Linear(second, third, bias=spec.bias)
        self.fc4 = nn.Linear(third, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of images or numbers of shape (batch, ...)."""
        hidden = functional.relu(self.fc1(inputs.flatten(1)))
        hidden = functional.relu(self.fc2(hidden))
        hidden = functional.relu(self.fc3(hidden))
        return self.fc4(hidden)
