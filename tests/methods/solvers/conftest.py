"""Tiny objectives of every kind, each with dense matrices that say the same by brute force."""

from collections.abc import Set
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.methods.solvers.quadratic import (
    Quadratic,
    dense_quadratic,
    diagonal_quadratic,
    kronecker_quadratic,
)

SHAPES = {"first.weight": (2, 3), "first.bias": (2,), "second.weight": (2, 1, 2, 1)}
WEIGHTS = [0.5, 0.3, 0.2]
SIZE = 12


@dataclass(frozen=True)
class Problem:
    """A quadratic with what defines it, and with dense matrices that say the same."""

    quadratic: Quadratic
    clients: list[dict[str, Tensor]]
    fishers: list[Tensor]

    @property
    def matrix(self) -> Tensor:
        return sum(p * fisher for p, fisher in zip(WEIGHTS, self.fishers, strict=True))

    @property
    def side(self) -> Tensor:
        return sum(p * f @ flat(w) for p, f, w in zip(WEIGHTS, self.fishers, self.clients, strict=True))

    @property
    def mean(self) -> Tensor:
        return sum(p * flat(w) for p, w in zip(WEIGHTS, self.clients, strict=True))

    @property
    def nearest(self) -> Tensor:
        """The minimiser nearest to the mean."""
        inverse = torch.linalg.pinv(self.matrix, rtol=1e-10, hermitian=True)
        return self.mean + inverse @ (self.side - self.matrix @ self.mean)

    def value(self, vector: Tensor) -> float:
        return sum(
            p * (vector - flat(w)) @ f @ (vector - flat(w))
            for p, f, w in zip(WEIGHTS, self.fishers, self.clients, strict=True)
        ).item()


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in parameters.values()])


def random_clients(generator: torch.Generator) -> list[dict[str, Tensor]]:
    return [
        {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}
        for _ in WEIGHTS
    ]


def gram(rows: int, columns: int, generator: torch.Generator, *, null: bool) -> Tensor:
    """A second moment; with `null` its last coordinate is in the null space, for every client."""
    samples = torch.randn((rows, columns), generator=generator, dtype=torch.float64)
    if null:
        samples[:, -1] = 0
    return samples.T @ samples / rows


def diagonal_problem(generator: torch.Generator, clients: list[dict[str, Tensor]], *, null: bool) -> Problem:
    fishers = [
        {name: torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1 for name, shape in SHAPES.items()}
        for _ in WEIGHTS
    ]
    if null:
        for fisher in fishers:
            fisher["first.weight"][:, 1] = 0
            fisher["first.bias"][0] = 0
    dense = [torch.diag(flat(fisher)) for fisher in fishers]
    return Problem(diagonal_quadratic(clients, fishers, WEIGHTS), clients, dense)


def kronecker_problem(generator: torch.Generator, clients: list[dict[str, Tensor]], *, null: bool) -> Problem:
    return factored_problem({"first": (2, 4), "second": (2, 2)}, generator, clients, null=null)


def grouped_problem(generator: torch.Generator, clients: list[dict[str, Tensor]], *, null: bool) -> Problem:
    """Of a second layer whose rows have factors of their own."""
    sizes = {"first": (2, 4), "second[1 of 2]": (1, 2), "second[2 of 2]": (1, 2)}
    return factored_problem(sizes, generator, clients, null=null)


def embedding_problem(generator: torch.Generator, clients: list[dict[str, Tensor]], *, null: bool) -> Problem:
    """Of a second layer that is an embedding, whose weight has a row for each token."""
    return factored_problem({"first": (2, 4), "second": (2, 2)}, generator, clients, null=null, tokens={"second"})


def factored_problem(
    sizes: dict[str, tuple[int, int]],
    generator: torch.Generator,
    clients: list[dict[str, Tensor]],
    *,
    null: bool,
    tokens: Set[str] = frozenset(),
) -> Problem:
    fishers = []
    for _ in WEIGHTS:
        fisher = {}
        for layer, (rows, columns) in sizes.items():
            inputs = gram(2 if null else 8, columns, generator, null=null)
            outputs = gram(6, rows, generator, null=False)
            fisher[layer] = Kronecker(inputs.diagonal() if layer in tokens else inputs, outputs)
        fishers.append(fisher)
    places = torch.arange(SIZE).split([torch.Size(shape).numel() for shape in SHAPES.values()])
    positions = {name: place.reshape(shape) for (name, shape), place in zip(SHAPES.items(), places, strict=True)}
    dense = []
    for fisher in fishers:
        matrix = torch.zeros(SIZE, SIZE, dtype=torch.float64)
        for layer, factors in fisher.items():
            if layer in tokens:
                index = positions[f"{layer}.weight"].reshape(factors.inputs.shape[0], -1).T.flatten()
                matrix[index[:, None], index] = torch.kron(factors.outputs, factors.inputs.diag())
                continue
            index = to_matrix(positions, layer).flatten()
            matrix[index[:, None], index] = torch.kron(factors.outputs, factors.inputs)
        dense.append(matrix)
    return Problem(kronecker_quadratic(clients, fishers, WEIGHTS), clients, dense)


def dense_problem(generator: torch.Generator, clients: list[dict[str, Tensor]], *, null: bool) -> Problem:
    fishers = [gram(2 if null else 20, SIZE, generator, null=null) for _ in WEIGHTS]
    return Problem(dense_quadratic(clients, fishers, WEIGHTS), clients, fishers)


KINDS = {
    "diagonal": diagonal_problem,
    "kronecker": kronecker_problem,
    "groups": grouped_problem,
    "embedding": embedding_problem,
    "dense": dense_problem,
}


@pytest.fixture(params=["regular", "singular"])
def null(request: pytest.FixtureRequest) -> bool:
    return request.param == "singular"


@pytest.fixture(params=list(KINDS))
def problem(request: pytest.FixtureRequest, null: bool) -> Problem:
    """Every kind of Fisher, with and without a null space."""
    generator = torch.Generator().manual_seed(11)
    return KINDS[request.param](generator, random_clients(generator), null=null)


@pytest.fixture(params=list(KINDS))
def agreed(request: pytest.FixtureRequest, null: bool) -> Problem:
    """Clients that are all the same, with different Fishers."""
    generator = torch.Generator().manual_seed(12)
    clients = random_clients(generator)[:1] * len(WEIGHTS)
    return KINDS[request.param](generator, clients, null=null)
