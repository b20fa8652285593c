"""Clients of chains of layers whose hidden units are alike, in any order."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.streams import chain, reordered
from tests import tiny

SPECS = [
    tiny.TINY,
    tiny.TINY_WITH_BIAS,
    ModelSpec("mlp", Images(1, 4, 4), classes=3, bias=True, widths=(7, 6, 5)),
    ModelSpec("lenet", Images(2, 16, 16), classes=4, bias=True, widths=(2, 3, 6, 5)),
    ModelSpec("cnn", Images(1, 20, 20), classes=3, widths=(3, 2, 5, 4)),
    ModelSpec("compact", Images(3, 16, 16), classes=3, bias=True),
]


def drawn(spec: ModelSpec, seed: int, scale: float = 5.0) -> Parameters:
    """Weights of units that are long enough for likeness to outweigh the prior on how many units there are."""
    generator = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(like.shape, generator=generator) for name, like in tiny.initial(spec).items()}


def related(spec: ModelSpec, count: int) -> list[Parameters]:
    """Clients some of whose units are alike."""
    common = drawn(spec, 9, 0.7)
    clients = [drawn(spec, seed, 0.5) for seed in range(count)]
    return [{name: tensor + common[name] for name, tensor in client.items()} for client in clients]


def shuffled(parameters: Parameters, spec: ModelSpec, seed: int) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    layers = chain(spec)
    return reordered(parameters, layers, [torch.randperm(one.units, generator=generator) for one in layers[:-1]])


def uploaded(clients: Sequence[Parameters], counts: Sequence[Sequence[int]] | None = None) -> list[Upload]:
    """Give clients label counts; by default different ones that cover every class."""
    classes = len(list(clients[0].values())[-1])
    rows = counts or [[1 + (i + c) % 4 for c in range(classes)] for i in range(len(clients))]
    return [
        Upload(
            num_examples=sum(row),
            statistics={Weights: Weights(one), LabelCounts: LabelCounts({"counts": torch.tensor(row).float()})},
        )
        for one, row in zip(clients, rows, strict=True)
    ]


def outputs(spec: ModelSpec, parameters: Parameters) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(6, *spec.inputs.shape, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return spec.load({name: tensor.double() for name, tensor in parameters.items()})(inputs)
