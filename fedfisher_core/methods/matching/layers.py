"""Transports of all layers of a network to those of another, and the network moved by them (OTFusion).

Singh and Jaggi 2020 (https://arxiv.org/abs/1910.05653), algorithm 1, with two additions. The bias of a unit is one more
number of its vector of incoming weights. Layers that add to the same units, as before a skip connection, share one
transport, whose ground metric is the sum over these layers. So networks that differ only in the order of their units
are recovered exactly.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedfisher_core.methods.matching.transport import EXACT, Transport, squared_distances
from fedfisher_core.models.spec import Parameters
from fedfisher_core.models.streams import StreamLayer


def transports(
    parameters: Mapping[str, Tensor],
    pivot: Mapping[str, Tensor],
    layers: Sequence[StreamLayer],
    *,
    transport: Transport = EXACT,
    distances: Mapping[str, Tensor] | None = None,
    unit_length: bool = False,
    correction: bool = True,
    outputs: bool = False,
) -> list[Tensor]:
    """Transport the units of every layer to those of another network.

    Weights are compared after what they read is aligned. In a network with skip connections, some of the layers that
    write to a stream also read it, by way of others: a first sweep leaves these out, a second has all of them.

    Args:
        parameters: of the network that is aligned.
        pivot: of the network that it is aligned to.
        layers: of both, as `streams` lists them.
        distances: squared distances between units by layer, such as those of their activations, shape (units, units);
            None for those of weights and biases.
        unit_length: whether a unit's weights and bias are scaled to length 1 before they are compared.
        correction: whether each of the other's units receives mass 1, rather than 1 / units.
        outputs: whether the network's outputs, the classes, are transported as well.

    Returns:
        T of every layer, shape (units, units of the pivot), of the parameters' dtype; the same for layers that write to
        the same stream, and the identity for outputs that do not move.
    """
    writers: dict[int | None, list[StreamLayer]] = {}
    for layer in layers:
        if layer.writes is not None or outputs:
            writers.setdefault(layer.writes, []).append(layer)
    found: dict[int | None, Tensor] = {}
    complete = False
    while not complete:
        complete = True
        for stream, members in writers.items():
            known = [layer for layer in members if distances is not None or layer.reads is None or layer.reads in found]
            complete = complete and len(known) == len(members)
            costs = [
                _weight_distances(
                    layer,
                    parameters,
                    pivot,
                    None if layer.reads is None else found[layer.reads],
                    unit_length=unit_length,
                )
                if distances is None
                else distances[layer.name]
                for layer in known
            ]
            plan = transport.plan(torch.stack(costs).sum(0))
            found[stream] = (plan if correction else plan / len(plan)).to(parameters[f"{members[0].name}.weight"])
    return [
        found[layer.writes] if layer.writes in found else _identity(parameters[f"{layer.name}.weight"])
        for layer in layers
    ]


def incoming(layers: Sequence[StreamLayer], transports: Sequence[Tensor]) -> list[Tensor | None]:
    """Find T of the units that each layer reads; None for the network's inputs."""
    found = {layer.writes: transport for layer, transport in zip(layers, transports, strict=True)}
    return [None if layer.reads is None else found[layer.reads] for layer in layers]


def align(
    parameters: Mapping[str, Tensor],
    layers: Sequence[StreamLayer],
    transports: Sequence[Tensor],
    *,
    in_place: Sequence[str] = (),
) -> Parameters:
    """Move the units of a network.

    Args:
        layers: as `streams` lists them.
        transports: of the units of every layer.
        in_place: names of layers of which only the outputs move, and not the columns for what they read.

    Returns:
        For every layer W -> T^T W T', where T' is the transport of what it reads, and b -> T^T b. Where all T are
        permutations and `in_place` is empty, it computes the same function.
    """
    result = dict(parameters)
    for layer, after, before in zip(layers, transports, incoming(layers, transports), strict=True):
        blocks = layer.blocks(parameters)
        if layer.name not in in_place:
            blocks = _align_columns(blocks, before)
        moved = torch.tensordot(after, blocks, dims=([0], [0]))
        result[f"{layer.name}.weight"] = moved.reshape(parameters[f"{layer.name}.weight"].shape)
        if layer.bias:
            result[f"{layer.name}.bias"] = after.T @ parameters[f"{layer.name}.bias"]
    return result


def align_input_matrix(matrix: Tensor, layer: StreamLayer, before: Tensor | None) -> Tensor:
    """Move both sides of a square matrix over a layer's inputs, such as a Gram matrix or a projection.

    Args:
        matrix: over the columns of the layer's flattened weight, shape (columns, columns), or with one more row and
            column, the last, for the bias.
        before: T of the units that the layer reads, as `incoming` lists it; None leaves the matrix as it is.

    Returns:
        K^T M K, shaped like M, where K is T at every position of a kernel, and 1 for the bias.
    """
    if before is None:
        return matrix
    return _align_last(_align_last(matrix, layer, before).T, layer, before).T


def _align_last(matrix: Tensor, layer: StreamLayer, before: Tensor) -> Tensor:
    columns = layer.inputs * layer.places
    weights, rest = matrix[:, :columns], matrix[:, columns:]
    blocks = weights.reshape(len(matrix), layer.inputs, layer.places)
    return torch.cat([_align_columns(blocks, before).flatten(1), rest], dim=1)


def _align_columns(blocks: Tensor, before: Tensor | None) -> Tensor:
    """Multiply blocks of shape (units, inputs, positions of a kernel) by T at every position."""
    return blocks if before is None else torch.einsum("uip,ij->ujp", blocks, before)


def _weight_distances(
    layer: StreamLayer,
    parameters: Mapping[str, Tensor],
    pivot: Mapping[str, Tensor],
    before: Tensor | None,
    *,
    unit_length: bool,
) -> Tensor:
    """Squared distances between the incoming weights and biases of units."""
    aligned = None if before is None else before.double()
    ours = _align_columns(layer.blocks(parameters).double(), aligned).flatten(1)
    theirs = layer.blocks(pivot).double().flatten(1)
    if layer.bias:
        ours, theirs = (
            torch.cat([rows, network[f"{layer.name}.bias"].double()[:, None]], dim=1)
            for rows, network in ((ours, parameters), (theirs, pivot))
        )
    if unit_length:
        ours, theirs = functional.normalize(ours), functional.normalize(theirs)
    return squared_distances(ours, theirs)


def _identity(weight: Tensor) -> Tensor:
    return torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
