"""PFNM: clients' hidden units are matched layer by layer, and those that find no partner make the network wider."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.engine.progress import track
from fedfisher_core.methods.matching.bayesian import ClientUnits, UnitModel, match
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import class_proportions
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.streams import StreamLayer, chain

_Positive = Field(gt=0, allow_inf_nan=False)


def require_wider(spec: ModelSpec) -> None:
    """Make sure that a network's hidden layers follow one another and can be made wider.

    Raises:
        UnsupportedLayerError: they do not, or can't.
        InputError: they can't.
    """
    widths = tuple(layer.units + 1 for layer in chain(spec)[:-1])
    wider = tuple(layer.units for layer in chain(replace(spec, widths=widths))[:-1])
    if wider != widths:
        raise UnsupportedLayerError(
            f"model {spec.name!r}: asked for hidden layers of widths {widths}, it makes {wider}; allowed: families "
            f"that build the widths they are asked for"
        )


def visits(clients: int, sweeps: int, generator: torch.Generator) -> list[int]:
    """Draw the order in which clients are matched: all in their order, then all in a random order, sweep by sweep.

    Args:
        sweeps: times that every client is matched again.
        generator: draws the random orders, on the CPU.
    """
    drawn = [torch.randperm(clients, generator=generator).tolist() for _ in range(sweeps)]
    return [*range(clients), *(client for order in drawn for client in order)]


@method(
    "pfnm",
    uploads=(Weights, LabelCounts),
    reference="https://arxiv.org/abs/1905.12022",
    supports=require_wider,
    continues=False,
)
def pfnm(
    server: Server,
    uploads: Sequence[Upload],
    *,
    sigma: Annotated[float, _Positive, Field(description="variance of a client's unit around its global unit")] = 1.0,
    sigma0: Annotated[float, _Positive, Field(description="variance of a global unit around the prior's mean")] = 1.0,
    gamma: Annotated[float, _Positive, Field(description="the larger, the more global units")] = 7.0,
    sweeps: Annotated[NonNegativeInt, Field(description="times that every client is matched again")] = 5,
    prior_mean: Annotated[FiniteFloat, Field(description="prior's mean of a weight")] = 0.0,
    bias_prior_mean: Annotated[FiniteFloat, Field(description="prior's mean of a bias")] = 0.1,
    max_units: Annotated[
        PositiveInt, Field(description="units of a global layer from which on a client adds one at a time at most")
    ] = 700,
    official_prior_bug: Annotated[
        bool, Field(description="put the bias's prior mean on the first weight, after the first layer")
    ] = False,
) -> Aggregate:
    """Match hidden units layer by layer, in one shot (Yurochkin et al. 2019, as Wang et al. 2020 release it).

    From the inputs to the outputs, a unit is the vector of its incoming weights and its bias. The weights lie at the
    coordinates of the global units that the client's units of the layer before became. The global unit is the posterior
    mean (mu / sigma0 + sum x / sigma) / (1 / sigma0 + c / sigma) of its c client units: the prior shrinks it, and the
    more the fewer they are. One client alone gets its hidden weights back as
    (mu / sigma0 + x / sigma) / (1 / sigma0 + 1 / sigma), by default halved: without biases, its predictions stay but
    are less sure. The last layer is not matched and not shrunk: the weights into a class are the mean over clients by
    their numbers of examples of that class, and the plain mean where no client has any. The network that results has
    its own widths, at least those of the clients'.

    Networks without biases stay so, where the authors' code adds biases of 0 whose prior mean is 0.1. The result
    depends on the order of the clients, since the units of the first make the first global units and each matching
    is found given those before. It does not depend on the order of a client's hidden units, ties aside. Clients are all
    equally wide, so that the authors' order by width is the clients' own.
    """
    *hidden, last = chain(server.spec)
    model = UnitModel(sigma=sigma, sigma0=sigma0, gamma=gamma, max_units=max_units)
    clients = [upload[Weights].tensors for upload in uploads]
    width = (hidden[0] if hidden else last).inputs
    slots: Sequence[Tensor] = [torch.arange(width, device=server.device)] * len(clients)
    merged: Parameters = {}
    widths: list[int] = []
    for index, layer in enumerate(track(hidden, what="layer")):
        coordinates = width * layer.places + layer.bias
        prior = torch.full((coordinates,), prior_mean, dtype=torch.float64, device=server.device)
        if official_prior_bug and index > 0:
            prior[0] = bias_prior_mean
        elif layer.bias:
            prior[-1] = bias_prior_mean
        found = match(
            [_units(layer, one, own, coordinates) for one, own in zip(clients, slots, strict=True)],
            prior_mean=prior,
            visits=visits(len(clients), sweeps, server.generator),
            model=model,
        )
        slots, width = found.assignments, len(found.units)
        widths.append(width)
        merged |= _parameters(layer, found.units, clients[0])
    merged |= _last_layer(last, clients, slots, width, class_proportions(uploads))
    grown = sum(tensor.numel() for tensor in merged.values()) / sum(tensor.numel() for tensor in clients[0].values())
    units = {f"{layer.name}_units": float(count) for layer, count in zip(hidden, widths, strict=True)}
    return Aggregate(
        networks=({name: merged[name] for name in clients[0]},),
        details={"relative_size": grown, **units},
        spec=replace(server.spec, widths=tuple(widths)),
    )


def _units(layer: StreamLayer, parameters: Parameters, slots: Tensor, coordinates: int) -> ClientUnits:
    """See a layer's units as vectors [incoming weights | bias], with the global coordinate of each entry."""
    vectors = layer.blocks(parameters).flatten(1).double()
    columns = (slots[:, None] * layer.places + torch.arange(layer.places, device=slots.device)).flatten()
    if layer.bias:
        vectors = torch.cat([vectors, parameters[f"{layer.name}.bias"].double()[:, None]], 1)
        columns = torch.cat([columns, columns.new_tensor([coordinates - 1])])
    return ClientUnits(vectors=vectors, columns=columns, shares=vectors.new_ones(1))


def _parameters(layer: StreamLayer, units: Tensor, like: Parameters) -> Parameters:
    kernel = like[f"{layer.name}.weight"].shape[2:]
    weights = units[:, :-1] if layer.bias else units
    result = {f"{layer.name}.weight": weights.reshape(len(units), -1, *kernel).float()}
    if layer.bias:
        result[f"{layer.name}.bias"] = units[:, -1].float()
    return result


def _last_layer(
    layer: StreamLayer, clients: Sequence[Parameters], slots: Sequence[Tensor], width: int, shares: Tensor
) -> Parameters:
    """Average the weights into each class, and its bias, by the clients' parts of its examples."""
    weights = shares.new_zeros(layer.units, width, layer.places)
    for share, parameters, own in zip(shares, clients, slots, strict=True):
        weights[:, own] += share[:, None, None] * layer.blocks(parameters).double()
    result = {
        f"{layer.name}.weight": weights.reshape(layer.units, -1, *clients[0][f"{layer.name}.weight"].shape[2:]).float()
    }
    if layer.bias:
        biases = torch.stack([parameters[f"{layer.name}.bias"] for parameters in clients]).double()
        result[f"{layer.name}.bias"] = (shares * biases).sum(0).float()
    return result
