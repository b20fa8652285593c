"""The objective of FedFisher, f(w) = sum_i p_i (w - w_i)^T F_i (w - w_i), for three kinds of Fisher.

Functions that form it take the clients' parameters w_i by name, and weights p_i, positive, with sum 1. They raise
InputError where numbers of clients, names, shapes or weights don't fit, and DivergedClientError where a tensor of a
client is not finite.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.fisher.kronecker import DiagonalInputsSum, GroupedKroneckerSum, Kronecker, KroneckerSum
from fedfisher_core.fisher.layers import MatrixName, join, matrix_names, to_matrix, vectors_of, weight_of
from fedfisher_core.fisher.low_rank import shortened
from fedfisher_core.methods.solvers.blocks import (
    Block,
    DenseBlock,
    DiagonalBlock,
    DiagonalInputsBlock,
    GroupedKroneckerBlock,
    KroneckerBlock,
    ShiftedBlock,
    columns_of,
)

Parameters = Mapping[str, Tensor]


def checked_mean(clients: Sequence[Parameters], fishers: int, weights: Sequence[float]) -> dict[str, Tensor]:
    """Check the clients one after another, and average them; identical clients give that client, to the last bit.

    Args:
        fishers: how many Fishers there are.
    """
    if not len(clients) == fishers == len(weights) > 0:
        raise InputError(
            f"clients, fishers and weights have lengths {len(clients)}, {fishers} and {len(weights)}; "
            "allowed: the same, at least 1"
        )
    if not all(weight > 0 for weight in weights) or not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
        raise InputError(f"weights are {list(weights)}; allowed: positive numbers with sum 1")
    first = clients[0]
    mean = {name: tensor.clone() for name, tensor in first.items()}
    for index, (client, weight) in enumerate(zip(clients, weights, strict=True)):
        if list(client) != list(first):
            raise InputError(f"clients[{index}] has parameters {list(client)}; allowed: {list(first)}")
        for name, tensor in client.items():
            check_tensor(tensor, tuple(first[name].shape), f"clients[{index}][{name!r}]", index)
            # Differences to the first client: the mean of identical clients is then that client, to the last bit.
            mean[name] += weight * (tensor - first[name])
    return mean


def check_matrices(matrices: Iterable[str], parameters: Parameters) -> None:
    """Refuse, by an InputError, names of matrices that are not all rows of all parameters, in the order of the rows."""
    given = list(matrices)
    groups = {name.layer: name.groups for name in map(MatrixName.of, given)}
    weights = {layer: weight_of(layer, parameters) for layer in groups}
    names = {name for layer, weight in weights.items() for name in (weight, *vectors_of(layer, parameters))}
    unmatched = set(weights.values()) - parameters.keys() | parameters.keys() - names
    whole = [matrix for layer, count in groups.items() for matrix in matrix_names(layer, count)]
    if unmatched or given != whole:
        differing = sorted(unmatched) or sorted(set(whole) - set(given)) or whole
        raise InputError(f"fishers[0] has layers {given}, which don't match the parameters {differing}")


def check_tensor(tensor: Tensor, shape: tuple[int, ...], argument: str, client: int) -> None:
    """Refuse a client's tensor of another shape (InputError), or one that is not finite (DivergedClientError).

    Args:
        argument: what messages call the tensor.
        client: its number, for messages.
    """
    if tuple(tensor.shape) != shape:
        raise InputError(f"{argument} has shape {tuple(tensor.shape)}; allowed: {shape}")
    if not is_finite(tensor):
        raise DivergedClientError(f"client {client}: {argument} is not finite")


@dataclass(frozen=True)
class Quadratic:
    """The objective, block by block (Eq. 6), expanded about the mean of the clients; made by this module's functions.

    With m = sum_i p_i w_i and A = sum_i p_i F_i it is f(w) = f(m) - 2 r^T (w - m) + (w - m)^T A (w - m), where
    r = sum_i p_i F_i (w_i - m). So it needs no client's vector, and rounds at the size of the clients' differences
    instead of the weights'. Solvers work on the vectors of the blocks, a tuple in the order of `blocks`.

    Args:
        blocks: A.
        start: for each block the mean of the clients.
        slope: for each block r, half the negative gradient at the mean.
        floor: f(m).
        like: named parameters whose names and shapes a solution takes.
    """

    blocks: tuple[Block, ...]
    start: tuple[Tensor, ...]
    slope: tuple[Tensor, ...]
    floor: float
    like: Parameters

    def vectors(self, parameters: Parameters) -> tuple[Tensor, ...]:
        """Form the vectors of the blocks from named parameters."""
        return tuple(block.gather(parameters) for block in self.blocks)

    def parameters(self, vectors: Sequence[Tensor]) -> dict[str, Tensor]:
        """Undo `vectors`; the tensors are copies, in the order of names of the clients."""
        named = join(block.scatter(vector, self.like) for block, vector in zip(self.blocks, vectors, strict=True))
        return {name: named[name].clone() for name in self.like}

    def product(self, vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Multiply by A."""
        return tuple(block.product(vector) for block, vector in zip(self.blocks, vectors, strict=True))

    def residual(self, vectors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Half the negative gradient, r - A (w - m)."""
        return tuple(
            slope - block.product(vector - start)
            for block, start, slope, vector in zip(self.blocks, self.start, self.slope, vectors, strict=True)
        )

    def value(self, vectors: Sequence[Tensor]) -> float:
        """Evaluate f: at least 0, below which rounding would bring it, and not a number where w is not finite."""
        total = self.floor
        for block, start, slope, vector in zip(self.blocks, self.start, self.slope, vectors, strict=True):
            step = vector - start
            total += dot(step, block.product(step)) - 2 * dot(slope, step)
        return total if math.isnan(total) else max(0.0, total)


def dot(left: Tensor, right: Tensor) -> float:
    """Inner product of two tensors of one shape, in double precision: that of small gradients would underflow."""
    return torch.sum(left.double() * right.double()).item()


def diagonal_quadratic(
    clients: Sequence[Parameters], fishers: Sequence[Parameters], weights: Sequence[float]
) -> Quadratic:
    """Form the objective with diagonal Fishers, one block a parameter.

    Args:
        fishers: each client's diagonal, with the names and shapes of the parameters; not negative.
    """
    mean = checked_mean(clients, len(fishers), weights)
    totals = {name: torch.zeros_like(tensor) for name, tensor in mean.items()}
    slopes = {name: torch.zeros_like(tensor) for name, tensor in mean.items()}
    floor = 0.0
    for index, (client, fisher, weight) in enumerate(zip(clients, fishers, weights, strict=True)):
        if fisher.keys() != mean.keys():
            raise InputError(f"fishers[{index}] has names {list(fisher)}; allowed: as clients, {list(mean)}")
        for name, start in mean.items():
            check_tensor(fisher[name], tuple(start.shape), f"fishers[{index}][{name!r}]", index)
            difference = client[name] - start
            product = weight * fisher[name] * difference
            totals[name] += weight * fisher[name]
            slopes[name] += product
            floor += dot(difference, product)
    blocks = tuple(DiagonalBlock(name, total) for name, total in totals.items())
    return Quadratic(blocks, tuple(mean.values()), tuple(slopes.values()), floor, mean)


def diagonal_quadratic_of_sums(
    *, mean: Parameters, fisher: Parameters, product: Parameters, energy: float
) -> Quadratic:
    """Form the objective with diagonal Fishers from means over clients, all in double precision, one block a parameter.

    The slope is then a difference of large numbers. It is formed in double precision, and the objective in single.

    Args:
        mean: m = sum_i p_i w_i, by name.
        fisher: A = sum_i p_i F_i, with the same names and shapes; where it is 0 the objective is flat.
        product: sum_i p_i F_i w_i.
        energy: sum_i p_i w_i^T F_i w_i.
    """
    blocks, slopes, floor = [], [], energy
    for name, start in mean.items():
        total = fisher[name]
        blocks.append(DiagonalBlock(name, total.float()))
        slopes.append(torch.where(total > 0, product[name] - total * start, 0).float())
        floor += dot(start, total * start - 2 * product[name])
    like = {name: tensor.float() for name, tensor in mean.items()}
    return Quadratic(tuple(blocks), tuple(like.values()), tuple(slopes), floor, like)


def kronecker_quadratic(
    clients: Sequence[Parameters], fishers: Sequence[Mapping[str, Kronecker]], weights: Sequence[float]
) -> Quadratic:
    """Form the objective with Kronecker-factored Fishers (K-FAC), one block a layer.

    Args:
        fishers: each client's factors by matrix, which cover all parameters, groups of rows in their order; symmetric
            positive semi-definite.
    """
    mean = checked_mean(clients, len(fishers), weights)
    check_matrices(fishers[0], mean)
    for client, fisher in enumerate(fishers):
        if fisher.keys() != fishers[0].keys():
            raise InputError(f"fishers[{client}] has layers {list(fisher)}; allowed: {list(fishers[0])}")
    blocks: list[KroneckerBlock | GroupedKroneckerBlock | DiagonalInputsBlock] = []
    slopes, floor = [], 0.0
    for layer, matrices in _by_layer(fishers[0]).items():
        if fishers[0][matrices[0]].inputs.ndim == 1:
            name = weight_of(layer, mean)
            sums = _diagonal_sum_of(fishers, layer, weights, mean[name])
            columns = sums.inputs.shape[1]
            apart = torch.stack([columns_of(client[name] - mean[name], columns) for client in clients])
            products = sums.products(apart)
            blocks.append(DiagonalInputsBlock(name, sums))
            slopes.append(products.sum(dim=0))
            floor += dot(apart, products)
            continue
        total = _sum_of(fishers, matrices, weights, to_matrix(mean, matrices[0]).shape)
        differences = torch.stack([to_matrix(client, layer) for client in clients]) - to_matrix(mean, layer)
        if isinstance(total, KroneckerSum):
            products = total.products(differences)
            blocks.append(KroneckerBlock(layer, shortened(total)))
            slopes.append(products.sum(dim=0))
        else:
            differences = differences.unflatten(1, (len(matrices), -1)).transpose(0, 1)
            products = total.products(differences)
            blocks.append(GroupedKroneckerBlock(layer, total))
            slopes.append(products.sum(dim=1))
        floor += dot(differences, products)
    starts = tuple(block.gather(mean) for block in blocks)
    return Quadratic(tuple(blocks), starts, tuple(slopes), floor, mean)


def _by_layer(matrices: Iterable[str]) -> dict[str, list[str]]:
    """Gather the matrices of each layer, both in their order."""
    found: dict[str, list[str]] = {}
    for matrix in matrices:
        found.setdefault(MatrixName.of(matrix).layer, []).append(matrix)
    return found


def _sum_of(
    fishers: Sequence[Mapping[str, Kronecker]], matrices: Sequence[str], weights: Sequence[float], shape: Sequence[int]
) -> KroneckerSum | GroupedKroneckerSum:
    """Check the factors of a layer's matrices, which all have one shape, and sum their blocks over the clients."""
    rows, columns = shape
    for client, fisher in enumerate(fishers):
        for matrix in matrices:
            check_tensor(fisher[matrix].inputs, (columns,) * 2, f"fishers[{client}][{matrix!r}].inputs", client)
            check_tensor(fisher[matrix].outputs, (rows,) * 2, f"fishers[{client}][{matrix!r}].outputs", client)
    if len(matrices) == 1:
        return KroneckerSum.of([fisher[matrices[0]] for fisher in fishers], weights)
    inputs = torch.stack([torch.stack([fisher[matrix].inputs for matrix in matrices]) for fisher in fishers], dim=1)
    outputs = torch.stack(
        [
            weight * torch.stack([fisher[matrix].outputs for matrix in matrices])
            for fisher, weight in zip(fishers, weights, strict=True)
        ],
        dim=1,
    )
    return GroupedKroneckerSum(inputs, outputs)


def _diagonal_sum_of(
    fishers: Sequence[Mapping[str, Kronecker]], layer: str, weights: Sequence[float], parameter: Tensor
) -> DiagonalInputsSum:
    """Check the factors of a layer whose A is diagonal, and sum its blocks over the clients."""
    columns = len(fishers[0][layer].inputs)
    rows = parameter.numel() // columns
    for client, fisher in enumerate(fishers):
        check_tensor(fisher[layer].inputs, (columns,), f"fishers[{client}][{layer!r}].inputs", client)
        check_tensor(fisher[layer].outputs, (rows,) * 2, f"fishers[{client}][{layer!r}].outputs", client)
    return DiagonalInputsSum.of([fisher[layer] for fisher in fishers], weights)


def dense_quadratic(clients: Sequence[Parameters], fishers: Sequence[Tensor], weights: Sequence[float]) -> Quadratic:
    """Form the objective with full Fishers, a single block.

    Args:
        fishers: each client's Fisher, shape (d, d), in the order of its d parameters; symmetric positive semi-definite.
    """
    mean = checked_mean(clients, len(fishers), weights)
    start = _flat(mean)
    total = start.new_zeros(len(start), len(start))
    slope = torch.zeros_like(start)
    floor = 0.0
    for index, (client, fisher, weight) in enumerate(zip(clients, fishers, weights, strict=True)):
        check_tensor(fisher, (len(start),) * 2, f"fishers[{index}]", index)
        difference = _flat(client) - start
        product = weight * (fisher @ difference)
        total += weight * fisher
        slope += product
        floor += dot(difference, product)
    return Quadratic((DenseBlock(tuple(mean), total),), (start,), (slope,), floor, mean)


def with_penalty(
    quadratic: Quadratic, *, factor: float, penalty: float, centre: Parameters, start: Parameters
) -> Quadratic:
    """Form factor f(w) + penalty |w - centre|^2, expanded about `start`, where solvers begin."""
    starts, centres = quadratic.vectors(start), quadratic.vectors(centre)
    apart = [one - other for one, other in zip(centres, starts, strict=True)]
    slopes = [
        factor * residual + penalty * way for residual, way in zip(quadratic.residual(starts), apart, strict=True)
    ]
    return Quadratic(
        blocks=tuple(ShiftedBlock(block, factor, penalty) for block in quadratic.blocks),
        start=starts,
        slope=tuple(slopes),
        floor=factor * quadratic.value(starts) + penalty * sum(dot(way, way) for way in apart),
        like=quadratic.like,
    )


def _flat(parameters: Parameters) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in parameters.values()])
