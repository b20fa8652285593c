"""Several networks, and what makes one prediction of the outputs or the features of all."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.models.spec import Parameters, layers_with_weights


class SideBySide(nn.Module):
    """Gives the outputs of all networks on an input, shape (examples, networks * classes), network by network."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute outputs before the softmax."""
        return torch.cat([network(inputs) for network in self.networks], 1)


class Combined(SideBySide):
    """Gives what a combiner, by its parameters, makes of these outputs, shape (examples, classes)."""

    def __init__(self, networks: Sequence[nn.Module], combiner: Mapping[str, Tensor]) -> None:
        super().__init__(networks)
        self.combiner = nn.ParameterDict(combiner)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute outputs before the softmax."""
        return combine(super().forward(inputs), dict(self.combiner.items()))


class ByFeatures(Combined):
    """Multiplies the normalised mean of the networks' features with the plain mean of their last layers' weights.

    A network's features are what its last layer reads; the bias of this layer does not count. The combiner is the
    network's share in the mean of features: `shares`, shape (networks,).
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute outputs before the softmax."""
        heads = [layers_with_weights(network)[-1][1] for network in self.networks]
        features = [_read_by(head, network, inputs) for head, network in zip(heads, self.networks, strict=True)]
        mean = torch.einsum("n,nef->ef", self.combiner["shares"], torch.stack(features))
        prototypes = torch.stack([head.get_parameter("weight") for head in heads]).mean(0)
        return functional.normalize(mean, dim=1) @ prototypes.T


def _read_by(layer: nn.Module, network: nn.Module, inputs: Tensor) -> Tensor:
    """Run a network, and give what one of its layers reads, shape (examples, features)."""
    read: list[Tensor] = []
    with layer.register_forward_pre_hook(lambda _, given: read.append(given[0])):
        network(inputs)
    return read[-1]


def draw_combiner(networks: int, classes: int, hidden: int, generator: torch.Generator) -> Parameters:
    """Draw a combiner with so many hidden units a network, on the CPU, as torch draws linear layers."""
    drawn = {}
    for layer, rows, columns in (
        ("hidden", networks * hidden, networks * classes),
        ("head", classes, networks * hidden),
    ):
        for part, shape in (("weight", (rows, columns)), ("bias", (rows,))):
            drawn[f"{layer}_{part}"] = torch.empty(shape).uniform_(-(columns**-0.5), columns**-0.5, generator=generator)
    return drawn


def combine(outputs: Tensor, combiner: Mapping[str, Tensor]) -> Tensor:
    """Apply a combiner to the outputs of all networks: a linear layer, ReLU and a linear layer."""
    hidden = functional.linear(outputs, combiner["hidden_weight"], combiner["hidden_bias"]).relu()
    return functional.linear(hidden, combiner["head_weight"], combiner["head_bias"])
