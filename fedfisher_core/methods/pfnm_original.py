"""PFNM as its authors released it: units are matched by their outgoing weights, from the outputs to the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any

import torch
from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.progress import track
from fedfisher_core.methods.matching.bayesian import ClientUnits, UnitModel, match
from fedfisher_core.methods.method import method
from fedfisher_core.methods.pfnm import require_wider, visits
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import class_proportions
from fedfisher_core.methods.shared.selection import best_on_validation
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.streams import StreamLayer, chain

Tried = Annotated[tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(min_length=1)]


def _supports(spec: ModelSpec) -> None:
    require_wider(spec)
    if len(chain(spec)) < 2:
        raise InputError(f"model {spec.name!r} has no hidden layer; allowed: networks with hidden units to match")


def _validates(settings: Any) -> bool:
    return len(settings.sigma) * len(settings.sigma0) * len(settings.gamma) > 1


@method(
    "pfnm_original",
    uploads=(Weights, LabelCounts),
    reference="https://github.com/IBM/probabilistic-federated-neural-matching",
    supports=_supports,
    validates=_validates,
    continues=False,
)
def pfnm_original(
    server: Server,
    uploads: Sequence[Upload],
    *,
    sigma: Annotated[Tried, Field(description="variances of a client's unit around its global unit")] = (1.0, 0.1, 0.5),
    sigma0: Annotated[Tried, Field(description="variances of a global unit around the prior's mean")] = (1.0, 10.0),
    gamma: Annotated[Tried, Field(description="the larger, the more global units")] = (1.0, 0.001, 50.0),
    sweeps: Annotated[NonNegativeInt, Field(description="times that every client is matched again")] = 5,
    prior_mean: Annotated[FiniteFloat, Field(description="prior's mean of a weight")] = 0.0,
    bias_prior_mean: Annotated[FiniteFloat, Field(description="prior's mean of a bias")] = 0.1,
    max_units: Annotated[
        PositiveInt, Field(description="units of a global layer from which on a client adds one at a time at most")
    ] = 700,
) -> Aggregate:
    """Match hidden units from the outputs to the inputs, in one shot (Yurochkin et al. 2019, their code).

    A unit is the vector of its bias and its outgoing weights; in the first hidden layer, of its incoming weights as
    well. The weights lie at the coordinates of the global units that the client's units of the layer after became.
    Weights out of the last hidden layer count by class: those into class c as n_ic / sum_j n_jc of an observation,
    where n_ic are client i's examples of the class. The classes' biases have their posterior mean, with the same parts.
    All combinations of sigma, sigma0 and gamma are tried on one order of visits, and the best on the validation images
    is kept. One of each needs no images. The defaults are the grid of the authors' code, which selects on the training
    images.

    Only the first layer's units see incoming weights, and the prior shrinks all layers, the last as well: `pfnm`
    differs in both. The authors' code is for fully connected networks. In a convolution, each position of a kernel is a
    further coordinate. Networks without biases stay so, and classes that no client holds count equally for all. The
    network that results has its own widths, at least those of the clients'.
    """
    hidden = len(chain(server.spec)) - 1
    orders = [visits(len(uploads), sweeps, server.generator) for _ in range(hidden)]
    clients = [upload[Weights].tensors for upload in uploads]
    shares = class_proportions(uploads)
    points = list(product(gamma, sigma, sigma0))
    return best_on_validation(
        server,
        (
            _merge(
                server.spec,
                clients,
                shares,
                orders,
                UnitModel(sigma=of_unit, sigma0=of_prior, gamma=mass, max_units=max_units),
                prior_mean=prior_mean,
                bias_prior_mean=bias_prior_mean,
            )
            for mass, of_unit, of_prior in track(points, what="combination")
        ),
    )


@dataclass(frozen=True)
class _Coordinates:
    """The vector of a hidden unit: [incoming weights, in the first layer | bias | outgoing weights].

    Args:
        layer: of the unit.
        after: the layer that reads it.
        first: whether incoming weights are part of the vector.
        width: global units of the layer after.
    """

    layer: StreamLayer
    after: StreamLayer
    first: bool
    width: int

    @property
    def incoming(self) -> int:
        return self.layer.inputs * self.layer.places if self.first else 0

    @property
    def before_outgoing(self) -> int:
        return self.incoming + self.layer.bias

    @property
    def total(self) -> int:
        return self.before_outgoing + self.width * self.after.places

    def units(self, parameters: Parameters, slots: Tensor, shares: Tensor) -> ClientUnits:
        """See a client's units as vectors.

        Args:
            slots: the global unit that each of its units of the layer after became.
            shares: the part of an observation that a weight into each global unit counts as, shape (width,).
        """
        parts = [self.layer.blocks(parameters).flatten(1)] if self.first else []
        if self.layer.bias:
            parts.append(parameters[f"{self.layer.name}.bias"][:, None])
        parts.append(self.after.blocks(parameters).transpose(0, 1).flatten(1))
        places = torch.arange(self.after.places, device=slots.device)
        outgoing = self.before_outgoing + (slots[:, None] * len(places) + places).flatten()
        return ClientUnits(
            vectors=torch.cat(parts, 1).double(),
            columns=torch.cat([torch.arange(self.before_outgoing, device=slots.device), outgoing]),
            shares=torch.cat([shares.new_ones(self.before_outgoing), shares.repeat_interleave(len(places))]),
        )

    def parameters(self, units: Tensor, like: Parameters) -> Parameters:
        """Make parameters from the vectors of global units, shape (units, total)."""
        incoming, bias, outgoing = units.split(
            [self.incoming, int(self.layer.bias), self.width * self.after.places], dim=1
        )
        blocks = outgoing.reshape(len(units), self.width, self.after.places).transpose(0, 1)
        result = {f"{self.after.name}.weight": _weight(blocks, self.after, like)}
        if self.layer.bias:
            result[f"{self.layer.name}.bias"] = bias[:, 0].float()
        if self.first:
            blocks = incoming.reshape(len(units), self.layer.inputs, self.layer.places)
            result[f"{self.layer.name}.weight"] = _weight(blocks, self.layer, like)
        return result


def _weight(blocks: Tensor, layer: StreamLayer, like: Parameters) -> Tensor:
    """A layer's weight from its blocks, shape (units, inputs, positions of a kernel)."""
    kernel = like[f"{layer.name}.weight"].shape[2:]
    return blocks.reshape(len(blocks), -1, *kernel).float()


def _merge(
    spec: ModelSpec,
    clients: Sequence[Parameters],
    class_shares: Tensor,
    orders: Sequence[Sequence[int]],
    model: UnitModel,
    *,
    prior_mean: float,
    bias_prior_mean: float,
) -> Aggregate:
    layers = chain(spec)
    last = layers[-1]
    merged: Parameters = {}
    widths: list[int] = []
    slots: Sequence[Tensor] = [torch.arange(last.units, device=class_shares.device)] * len(clients)
    shares, width = class_shares, last.units
    for index in reversed(range(len(layers) - 1)):
        coordinates = _Coordinates(layers[index], layers[index + 1], first=index == 0, width=width)
        prior = torch.full((coordinates.total,), prior_mean, dtype=torch.float64, device=class_shares.device)
        if layers[index].bias:
            prior[coordinates.incoming] = bias_prior_mean
        found = match(
            [coordinates.units(*one) for one in zip(clients, slots, shares, strict=True)],
            prior_mean=prior,
            visits=orders[index],
            model=model,
        )
        slots, width = found.assignments, len(found.units)
        shares = class_shares.new_ones(len(clients), width)
        widths.insert(0, width)
        merged |= coordinates.parameters(found.units, clients[0])
    if last.bias:
        biases = torch.stack([one[f"{last.name}.bias"] for one in clients]).double()
        sums = bias_prior_mean / model.sigma0 + (class_shares * biases).sum(0) / model.sigma
        merged[f"{last.name}.bias"] = (sums / model.precisions(class_shares.sum(0))).float()
    grown = sum(tensor.numel() for tensor in merged.values()) / sum(tensor.numel() for tensor in clients[0].values())
    chosen = {"sigma": model.sigma, "sigma0": model.sigma0, "gamma": model.gamma, "relative_size": grown}
    units = {f"{layer.name}_units": float(count) for layer, count in zip(layers[:-1], widths, strict=True)}
    return Aggregate(
        networks=({name: merged[name] for name in clients[0]},),
        details=chosen | units,
        spec=replace(spec, widths=tuple(widths)),
    )
