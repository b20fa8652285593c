"""What clients bring to an objective: checked by name, and averaged."""

import math
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from fedfisher_core.errors import DivergedClientError, InputError
from fedfisher_core.finite import is_finite
from fedfisher_core.fisher.layers import vectors_of
from fedfisher_core.fisher.matrix_names import MatrixName, matrix_names

Parameters = Mapping[str, Tensor]


def checked_mean(clients: Sequence[Parameters], fishers: int, weights: Sequence[float]) -> dict[str, Tensor]:
    """Check the clients one after another, and average them.

    Args:
        clients: parameters of each.
        fishers: how many Fishers there are.
        weights: of the clients.

    Returns:
        The mean, of identical clients that client.

    Raises:
        InputError: numbers of clients, names, shapes or weights don't fit.
        DivergedClientError: a client's parameters are not finite.
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
    """Refuse names of matrices that are not all rows of all parameters, in the order of the rows.

    Args:
        matrices: their names.
        parameters: of a client.

    Raises:
        InputError: they don't match.
    """
    given = list(matrices)
    groups = {name.layer: name.groups for name in map(MatrixName.of, given)}
    names = {name for layer in groups for name in (f"{layer}.weight", *vectors_of(layer, parameters))}
    unmatched = {f"{layer}.weight" for layer in groups} - parameters.keys() | parameters.keys() - names
    whole = [matrix for layer, count in groups.items() for matrix in matrix_names(layer, count)]
    if unmatched or given != whole:
        differing = sorted(unmatched) or sorted(set(whole) - set(given)) or whole
        raise InputError(f"fishers[0] has layers {given}, which don't match the parameters {differing}")


def check_tensor(tensor: Tensor, shape: tuple[int, ...], argument: str, client: int) -> None:
    """Refuse a tensor of a client that has another shape or is not finite.

    Args:
        tensor: the client's.
        shape: that it must have.
        argument: what it is called.
        client: whose it is.

    Raises:
        InputError: it has another shape.
        DivergedClientError: it is not finite.
    """
    if tuple(tensor.shape) != shape:
        raise InputError(f"{argument} has shape {tuple(tensor.shape)}; allowed: {shape}")
    if not is_finite(tensor):
        raise DivergedClientError(f"client {client}: {argument} is not finite")
