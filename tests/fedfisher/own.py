"""Networks as a caller writes them, which no name stands for."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import fedfisher


def network(seed: int = 0) -> nn.Module:
    """A small network with biases for images of 1 x 6 x 6 and three classes."""
    return drawn(
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(18, 5),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(5, 3),
        ),
        seed,
    )


def drawn(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a network with weights of a seed, and leave the generator of the process as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def examples(count: int = 12, seed: int = 0, *shape: int) -> tuple[Tensor, Tensor]:
    """Inputs with labels of three classes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, *(shape or (1, 6, 6)), generator=generator)
    return inputs, torch.randint(0, 3, (count,), generator=generator)


def loader(count: int = 12, seed: int = 0) -> DataLoader[tuple[Tensor, ...]]:
    """The same examples in batches."""
    return DataLoader(TensorDataset(*examples(count, seed)), batch_size=5)


def client(number: int = 0) -> fedfisher.Client:
    """A client with a network and examples of its own."""
    return fedfisher.Client(network(number), loader(10 + number, number))


def clients(count: int = 3) -> list[fedfisher.Client]:
    return [client(number) for number in range(count)]
