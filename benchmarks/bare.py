"""A federation's clients in bare torch, for programs that know nothing of this project.

They get their options in the variable BARE_OPTIONS: JSON with the fields of `Options`.
"""

import json
import os
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Options:
    """What is trained.

    Args:
        examples: an .npz file: inputs and labels of all clients in one piece, `ends` where each client's end, and
            inputs and labels of the test.
        rounds: how many.
        cohort: clients of a round.
        epochs: of a client.
        batch_size: examples of a step.
        learning_rate: of a step.
    """

    examples: str
    rounds: int
    cohort: int
    epochs: int
    batch_size: int
    learning_rate: float


OPTIONS = Options(**json.loads(os.environ["BARE_OPTIONS"]))


@cache
def examples() -> dict[str, Tensor]:
    """Read all examples, once a process."""
    torch.set_num_threads(1)
    with np.load(OPTIONS.examples) as files:
        return {name: torch.from_numpy(files[name]) for name in files}


def lenet() -> nn.Module:
    """Build the project's LeNet, which has no biases."""
    first, second = nn.Conv2d(1, 6, 5, bias=False), nn.Conv2d(6, 16, 5, bias=False)
    linear = [nn.Linear(*size, bias=False) for size in ((256, 120), (120, 84), (84, 10))]
    return nn.Sequential(
        *(first, nn.MaxPool2d(2), nn.ReLU(), second, nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        *(linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2]),
    )


def train(weights: dict[str, Tensor], number: int) -> tuple[dict[str, Tensor], int]:
    """Train one client.

    Args:
        weights: what it starts from, by name.
        number: which client.

    Returns:
        Its weights, and its number of examples.
    """
    held = examples()
    ends = [0, *held["ends"].tolist()]
    mine = slice(ends[number], ends[number + 1])
    inputs, labels = held["inputs"][mine], held["labels"][mine]
    network = lenet()
    network.load_state_dict(weights)
    optimiser = torch.optim.SGD(network.parameters(), lr=OPTIONS.learning_rate, fused=True)
    for _ in range(OPTIONS.epochs):
        for batch in torch.randperm(len(labels)).split(OPTIONS.batch_size):
            optimiser.zero_grad()
            functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
            optimiser.step()
    return network.state_dict(), len(labels)


def accuracy(weights: dict[str, Tensor]) -> float:
    """Measure a network on all test examples, as a fraction."""
    held, network = examples(), lenet()
    network.load_state_dict(weights)
    with torch.no_grad():
        return float((network(held["test_inputs"]).argmax(1) == held["test_labels"]).float().mean())


def tell(fraction: float) -> None:
    """Print the accuracy where the process that started this one finds it."""
    print("RESULT", json.dumps({"accuracy": 100 * fraction}), flush=True)
