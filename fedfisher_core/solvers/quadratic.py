"""The objective of FedFisher, f(w) = sum_i p_i (w - w_i)^T F_i (w - w_i), for three kinds of Fisher."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.errors import DivergedClientError, InputError
from fedfisher_core.fisher.kronecker import Kronecker, KroneckerSum
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.solvers.blocks import Block, DenseBlock, DiagonalBlock, KroneckerBlock

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Quadratic:
    """The objective, block by block (Eq. 6); made by one of the functions of this module.

    Solvers work on the vectors of the blocks, a tuple in the order of `blocks`.

    Args:
        blocks: the weighted Fishers.
        clients: for each block the clients' vectors, shape (clients, *shape of the vector).
        start: for each block the mean of the clients, sum_i p_i w_i.
        right_hand_side: for each block sum_i p_i F_i w_i.
        like: named parameters whose names and shapes a solution takes.
    """

    blocks: tuple[Block, ...]
    clients: tuple[Tensor, ...]
    start: tuple[Tensor, ...]
    right_hand_side: tuple[Tensor, ...]
    like: Parameters

    def vectors(self, parameters: Parameters) -> tuple[Tensor, ...]:
        """Form the vectors of the blocks from named parameters."""
        return tuple(block.gather(parameters) for block in self.blocks)

    def parameters(self, vectors: Sequence[Tensor]) -> dict[str, Tensor]:
        """Undo `vectors`; the tensors are copies, in the order of names of the clients."""
        named: dict[str, Tensor] = {}
        for block, vector in zip(self.blocks, vectors, strict=True):
            named |= block.scatter(vector, self.like)
        return {name: named[name].clone() for name in self.like}

    def product(self, vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Multiply by sum_i p_i F_i."""
        return tuple(block.product(vector) for block, vector in zip(self.blocks, vectors, strict=True))

    def residual(self, vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Half the negative gradient, sum_i p_i F_i (w_i - w), free of the cancellation in b - A w."""
        return tuple(
            block.products(clients - vector).sum(dim=0)
            for block, clients, vector in zip(self.blocks, self.clients, vectors, strict=True)
        )

    def value(self, vectors: Sequence[Tensor]) -> float:
        """Evaluate f from the clients' differences, so that it is accurate near 0 as well."""
        total = 0.0
        for block, clients, vector in zip(self.blocks, self.clients, vectors, strict=True):
            differences = clients - vector
            total += dot(differences, block.products(differences))
        return total


def dot(left: Tensor, right: Tensor) -> float:
    """Inner product of two tensors of one shape, accumulated in double precision."""
    return torch.sum(left * right, dtype=torch.float64).item()


def diagonal_quadratic(
    clients: Sequence[Parameters], fishers: Sequence[Parameters], weights: Sequence[float]
) -> Quadratic:
    """Form the objective with diagonal Fishers.

    Args:
        clients: each client's parameters w_i, by name.
        fishers: each client's diagonal, with the names and shapes of the parameters; not negative.
        weights: p_i, positive, with sum 1.

    Returns:
        The objective, one block a parameter.

    Raises:
        InputError: numbers of clients, names, shapes or weights don't fit.
        DivergedClientError: a client's parameters or Fisher are not finite.
    """
    _check_clients(clients, len(fishers), weights)
    blocks = []
    for name, like in clients[0].items():
        for client, fisher in enumerate(fishers):
            if fisher.keys() != clients[0].keys():
                raise InputError(f"fishers[{client}] has names {list(fisher)}; allowed: as clients, {list(clients[0])}")
            _check_tensor(fisher[name], tuple(like.shape), f"fishers[{client}][{name!r}]", client)
        stacked = torch.stack([weight * fisher[name] for weight, fisher in zip(weights, fishers, strict=True)])
        blocks.append(DiagonalBlock(name, stacked, stacked.sum(dim=0)))
    return _assemble(blocks, clients, weights)


def kronecker_quadratic(
    clients: Sequence[Parameters], fishers: Sequence[Mapping[str, Kronecker]], weights: Sequence[float]
) -> Quadratic:
    """Form the objective with Kronecker-factored Fishers (K-FAC).

    Args:
        clients: each client's parameters w_i, by name.
        fishers: each client's factors by layer, which cover all parameters; symmetric positive semi-definite.
        weights: p_i, positive, with sum 1.

    Returns:
        The objective, one block a layer.

    Raises:
        InputError: numbers of clients, names, shapes or weights don't fit.
        DivergedClientError: a client's parameters or factors are not finite.
    """
    _check_clients(clients, len(fishers), weights)
    names = {name for layer in fishers[0] for name in (f"{layer}.weight", f"{layer}.bias")}
    missing = {f"{layer}.weight" for layer in fishers[0]} - clients[0].keys() | clients[0].keys() - names
    if missing:
        raise InputError(
            f"fishers[0] has layers {list(fishers[0])}, which don't match the parameters {sorted(missing)}"
        )
    blocks = []
    for layer in fishers[0]:
        rows, columns = to_matrix(clients[0], layer).shape
        for client, fisher in enumerate(fishers):
            if fisher.keys() != fishers[0].keys():
                raise InputError(f"fishers[{client}] has layers {list(fisher)}; allowed: {list(fishers[0])}")
            _check_tensor(fisher[layer].inputs, (columns,) * 2, f"fishers[{client}][{layer!r}].inputs", client)
            _check_tensor(fisher[layer].outputs, (rows,) * 2, f"fishers[{client}][{layer!r}].outputs", client)
        blocks.append(KroneckerBlock(layer, KroneckerSum.of([fisher[layer] for fisher in fishers], weights)))
    return _assemble(blocks, clients, weights)


def dense_quadratic(clients: Sequence[Parameters], fishers: Sequence[Tensor], weights: Sequence[float]) -> Quadratic:
    """Form the objective with full Fishers.

    Args:
        clients: each client's parameters w_i, by name; d numbers in all.
        fishers: each client's Fisher, shape (d, d), in the order of the parameters; symmetric positive
            semi-definite.
        weights: p_i, positive, with sum 1.

    Returns:
        The objective, a single block.

    Raises:
        InputError: numbers of clients, names, shapes or weights don't fit.
        DivergedClientError: a client's parameters or Fisher are not finite.
    """
    _check_clients(clients, len(fishers), weights)
    size = sum(tensor.numel() for tensor in clients[0].values())
    for client, fisher in enumerate(fishers):
        _check_tensor(fisher, (size, size), f"fishers[{client}]", client)
    stacked = torch.stack([weight * fisher for weight, fisher in zip(weights, fishers, strict=True)])
    return _assemble([DenseBlock(tuple(clients[0]), stacked, stacked.sum(dim=0))], clients, weights)


def _assemble(blocks: Sequence[Block], clients: Sequence[Parameters], weights: Sequence[float]) -> Quadratic:
    vectors = [torch.stack([block.gather(client) for client in clients]) for block in blocks]
    means = []
    for stacked in vectors:
        scale = torch.tensor(weights, dtype=stacked.dtype, device=stacked.device)
        # Differences to the first client: the mean of identical clients is then that client, to the last bit.
        means.append(stacked[0] + torch.tensordot(scale, stacked - stacked[0], dims=1))
    sides = [block.products(stacked).sum(dim=0) for block, stacked in zip(blocks, vectors, strict=True)]
    return Quadratic(tuple(blocks), tuple(vectors), tuple(means), tuple(sides), dict(clients[0]))


def _check_clients(clients: Sequence[Parameters], fishers: int, weights: Sequence[float]) -> None:
    if not len(clients) == fishers == len(weights) > 0:
        raise InputError(
            f"clients, fishers and weights have lengths {len(clients)}, {fishers} and {len(weights)}; "
            "allowed: the same, at least 1"
        )
    if not all(weight > 0 for weight in weights) or not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
        raise InputError(f"weights are {list(weights)}; allowed: positive numbers with sum 1")
    for client, parameters in enumerate(clients):
        if list(parameters) != list(clients[0]):
            raise InputError(f"clients[{client}] has parameters {list(parameters)}; allowed: {list(clients[0])}")
        for name, tensor in parameters.items():
            _check_tensor(tensor, tuple(clients[0][name].shape), f"clients[{client}][{name!r}]", client)


def _check_tensor(tensor: Tensor, shape: tuple[int, ...], argument: str, client: int) -> None:
    if tuple(tensor.shape) != shape:
        raise InputError(f"{argument} has shape {tuple(tensor.shape)}; allowed: {shape}")
    if not torch.isfinite(tensor).all():
        raise DivergedClientError(f"client {client}: {argument} is not finite")
