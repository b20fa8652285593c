"""Matching the units of several clients' layers in a Bayesian nonparametric model, one layer at a time.

A client's unit x is drawn around a global unit theta, x ~ N(theta, sigma). A global unit is drawn around the prior's
mean, theta ~ N(mu, sigma0). Which of the global units a client has follows a beta-Bernoulli process of mass gamma
(Yurochkin et al. 2019, section 3). A coordinate that a client knows little of may count as a part r of an observation,
x ~ N(theta, sigma / r). The posterior of a global unit is kept by its natural parameters, sums over the client units
that are matched to it: G = mu / sigma0 + sum r x / sigma and S = 1 / sigma0 + sum r / sigma. Its mean G / S is the
unit's estimate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

POPULARITY_CAP = 10
"""Units that more clients share count as if only so many did, as in the authors' code."""


@dataclass(frozen=True)
class UnitModel:
    """The model that units are matched by.

    Args:
        sigma: variance of a client's unit around its global unit.
        sigma0: variance of a global unit around the prior's mean.
        gamma: mass of the beta process: the larger, the more global units.
        max_units: number of global units from which on a client can add only one at a time.
    """

    sigma: float
    sigma0: float
    gamma: float
    max_units: int

    def precisions(self, shares: Tensor) -> Tensor:
        """S of global units, from the sums of r over the client units that are matched to them."""
        return 1 / self.sigma0 + shares / self.sigma


@dataclass(frozen=True)
class ClientUnits:
    """One client's units of a layer.

    Args:
        vectors: shape (units, own coordinates), float64.
        columns: the global coordinate of each of its own, shape (own coordinates,); the client's units are 0 in all
            others.
        shares: r, the part of an observation that each global coordinate counts as, shape (coordinates,), or (1,) for
            all alike; float64.
    """

    vectors: Tensor
    columns: Tensor
    shares: Tensor


@dataclass(frozen=True)
class Matching:
    """The global units of a layer.

    Args:
        units: posterior means, shape (global units, coordinates).
        assignments: the global unit of every unit, shape (units,), one tensor a client.
    """

    units: Tensor
    assignments: tuple[Tensor, ...]


def scores(
    client: ClientUnits,
    sums: Tensor,
    shares: Tensor,
    counts: Tensor,
    *,
    prior_mean: Tensor,
    clients: int,
    model: UnitModel,
) -> Tensor:
    """By how much matching each unit of a client raises the log posterior.

    With u = r x / sigma and nu = mu / sigma0, matching to global unit k scores
    sum_d (u + G_k)^2 / (S_k + r / sigma) - G_k^2 / S_k + log(c_k / (J - c_k)). Making the unit the m-th new global unit
    scores sum_d (u + nu)^2 / (1 / sigma0 + r / sigma) - nu^2 sigma0 - 2 log m + 2 log(gamma / J).

    Args:
        client: its units; none of them is matched yet.
        sums: G of the global units, shape (global units, coordinates).
        shares: sums of r over the units matched to each, shape (global units, coordinates), or (global units, 1).
        counts: units matched to each, c, shape (global units,), float64.
        prior_mean: mu, shape (coordinates,).
        clients: their number, J.

    Returns:
        Shape (units, global units + possible new ones); at least as many columns as rows.
    """
    own = client.vectors * _at(client.columns, client.shares) / model.sigma
    popularity = counts.clamp(max=POPULARITY_CAP)
    known = (sums.square() / model.precisions(shares)).sum(1)
    existing = _fit(own, client.columns, sums, model.precisions(shares + client.shares)) - known
    existing += torch.log(popularity / (clients - popularity))

    prior = (prior_mean / model.sigma0)[None]
    alone = _fit(own, client.columns, prior, model.precisions(client.shares)[None])
    alone = alone - prior.square().sum() * model.sigma0
    # Below the cap there is room for all. Above it there is room for one, or for those without an existing unit.
    room = min(len(own), max(model.max_units - len(sums), len(own) - len(sums), 1))
    places = torch.arange(1, room + 1, dtype=sums.dtype, device=sums.device)
    fresh = alone + 2 * torch.log(model.gamma / (clients * places))
    return torch.cat([existing, fresh], 1)


def _fit(own: Tensor, columns: Tensor, sums: Tensor, precisions: Tensor) -> Tensor:
    """sum_d (u + G_k)^2 / S_k, where u is 0 but at its own columns; shape (units, global units)."""
    scaled = sums / precisions
    inverses = (1 / precisions).expand_as(sums)
    squares = own.square() @ _at(columns, inverses).T
    return squares + 2 * own @ _at(columns, scaled).T + (sums * scaled).sum(1)


def _at(columns: Tensor, tensor: Tensor) -> Tensor:
    """The columns of a tensor; its one column where it has no more."""
    return tensor if tensor.shape[-1] == 1 else tensor.index_select(-1, columns)


def match(clients: Sequence[ClientUnits], *, prior_mean: Tensor, visits: Iterable[int], model: UnitModel) -> Matching:
    """Match the units of all clients, one client after the other given all others.

    At its first visit a client's units are matched to the global units that exist. At a later visit they are first
    taken out, and global units without any other client's unit vanish. Every visit solves an assignment problem
    exactly, but their sequence only climbs towards some maximum of the posterior: it depends on the visits' order.

    Args:
        prior_mean: mu, shape (coordinates,), float64.
        visits: numbers of the clients; each comes at least once. The units of the first make the first global units.
    """
    state = _State(clients, prior_mean, model)
    for visited in visits:
        if visited in state.assignments:
            state.remove(visited)
        state.insert(visited)
    return Matching(
        units=state.sums / model.precisions(state.shares),
        assignments=tuple(state.assignments[client] for client in range(len(clients))),
    )


class _State:
    """The global units while they change."""

    def __init__(self, clients: Sequence[ClientUnits], prior_mean: Tensor, model: UnitModel) -> None:
        self.clients = clients
        self.prior_mean = prior_mean
        self.model = model
        self.sums = prior_mean.new_empty(0, len(prior_mean))
        self.shares = prior_mean.new_empty(0, max(len(client.shares) for client in clients))
        self.counts = prior_mean.new_empty(0)
        self.assignments: dict[int, Tensor] = {}

    def insert(self, visited: int) -> None:
        """Match a client's units to the global ones, or to new ones."""
        # SciPy's import takes time, which only matching needs.
        from scipy.optimize import linear_sum_assignment

        client = self.clients[visited]
        gains = scores(
            client,
            self.sums,
            self.shares,
            self.counts,
            prior_mean=self.prior_mean,
            clients=len(self.clients),
            model=self.model,
        )
        chosen = torch.from_numpy(linear_sum_assignment(gains.cpu().numpy(), maximize=True)[1]).to(self.sums.device)
        known = len(self.sums)
        new = chosen >= known
        added = int(new.sum())
        chosen[new] = known + torch.arange(added, device=chosen.device)
        prior = (self.prior_mean / self.model.sigma0).expand(added, -1)
        self.sums = torch.cat([self.sums, prior])
        self.shares = torch.cat([self.shares, self.shares.new_zeros(added, self.shares.shape[1])])
        self.counts = torch.cat([self.counts, self.counts.new_zeros(added)])
        self._add(visited, chosen, 1)
        self.assignments[visited] = chosen

    def remove(self, visited: int) -> None:
        """Take a client's units out of the global ones, and number the remaining ones anew."""
        self._add(visited, self.assignments.pop(visited), -1)
        kept = self.counts > 0
        self.sums, self.shares, self.counts = self.sums[kept], self.shares[kept], self.counts[kept]
        numbers = kept.cumsum(0) - 1
        self.assignments = {other: numbers[slots] for other, slots in self.assignments.items()}

    def _add(self, visited: int, chosen: Tensor, sign: int) -> None:
        client = self.clients[visited]
        scaled = client.vectors * _at(client.columns, client.shares)
        rows = self.sums[chosen]
        self.sums[chosen] = rows.index_add(1, client.columns, scaled, alpha=sign / self.model.sigma)
        self.shares[chosen] += sign * client.shares
        self.counts[chosen] += sign
