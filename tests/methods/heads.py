"""Networks whose last layers serve no prototypes, registered as another package would do it."""

import torch
from torch import Tensor, nn

from fedfisher_core.models.spec import ModelSpec, model


@model("head_and_norm")
class HeadAndNorm(nn.Module):
    """A network whose last layer normalises outputs."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes)
        self.norm = nn.LayerNorm(spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.norm(self.head(inputs.flatten(1)))


@model("rows_of_pixels")
class RowsOfPixels(nn.Module):
    """A network whose last layer sees every row of an image."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.hidden = nn.Linear(spec.inputs.width, 4)
        self.head = nn.Linear(4, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(inputs[:, 0]))).mean(1)


@model("pairs_of_outputs")
class PairsOfOutputs(nn.Module):
    """A network with two rows of its last layer for each class."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.hidden = nn.Linear(spec.inputs.size, 4)
        self.head = nn.Linear(4, 2 * spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(inputs.flatten(1)))).unflatten(1, (-1, 2)).amax(2)
