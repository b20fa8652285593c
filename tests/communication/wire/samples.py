"""Shapes and tensors that several files test with."""

import torch
from torch import Tensor

from fedfisher_core.communication.wire.budget import StatisticSpec
from fedfisher_core.communication.wire.codec import TensorSpec
from fedfisher_core.communication.wire.tensors import NONNEGATIVE, SIGNED, SYMMETRIC

# (inputs, outputs) of each layer, biases absent, ten classes; inputs of a convolution are channels x 5 x 5.
LENET = ((25, 6), (150, 16), (256, 120), (120, 84), (84, 10))
CNN = ((75, 32), (800, 64), (1600, 512), (512, 128), (128, 10))
CONVOLUTIONS = 2


def weights(layers: tuple[tuple[int, int], ...]) -> StatisticSpec:
    return StatisticSpec(
        "weights",
        SIGNED,
        tuple(TensorSpec(f"{i}", (outputs, inputs)) for i, (inputs, outputs) in enumerate(layers)),
        is_model=True,
    )


def diagonal(layers: tuple[tuple[int, int], ...]) -> StatisticSpec:
    return StatisticSpec("diagonal_fisher", NONNEGATIVE, weights(layers).tensors)


def kfac(layers: tuple[tuple[int, int], ...]) -> StatisticSpec:
    sizes = [(f"{i}.{side}", size) for i, pair in enumerate(layers) for side, size in zip("ag", pair, strict=True)]
    return StatisticSpec("kfac", SYMMETRIC, tuple(TensorSpec(name, (size, size)) for name, size in sizes))


def gram(layers: tuple[tuple[int, int], ...]) -> StatisticSpec:
    sizes = [inputs for inputs, _ in layers[CONVOLUTIONS:]]
    return StatisticSpec("gram", SYMMETRIC, tuple(TensorSpec(f"{i}", (size, size)) for i, size in enumerate(sizes)))


def psd(size: int, *, decay: float, generator: torch.Generator, rank: int | None = None) -> Tensor:
    """A symmetric matrix with the spectrum 1, 2**-decay, 3**-decay, ..., 0 beyond the rank."""
    basis, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))
    values = torch.arange(1, size + 1, dtype=torch.float64) ** -decay
    values[size if rank is None else rank :] = 0
    matrix = (basis * values) @ basis.T
    return ((matrix + matrix.T) / 2).float()


def random_tensors(statistic: StatisticSpec, generator: torch.Generator) -> dict[str, Tensor]:
    """Tensors that the statistic could consist of."""
    if statistic.structure is SYMMETRIC:
        return {t.name: psd(t.shape[0], decay=1.5, generator=generator) for t in statistic.tensors}
    tensors = {t.name: torch.randn(t.shape, generator=generator) for t in statistic.tensors}
    if statistic.structure is SIGNED:
        return tensors
    return {name: tensor.exp() for name, tensor in tensors.items()}
