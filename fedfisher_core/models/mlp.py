"""The fully connected network of PFNM and MA-Echo: 400, 200 and 100 hidden units."""

from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Tokens
from fedfisher_core.models.spec import ModelSpec, model


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
        """Compute logits.

        Args:
            inputs: images or numbers, shape (batch, ...).

        Returns:
            Shape (batch, classes).
        """
        hidden = functional.relu(self.fc1(inputs.flatten(1)))
        hidden = functional.relu(self.fc2(hidden))
        hidden = functional.relu(self.fc3(hidden))
        return self.fc4(hidden)
