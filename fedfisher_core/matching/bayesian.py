"""Matching the units of several clients' layers in a Bayesian nonparametric model, one layer at a time.

A client's unit x is drawn around a global unit theta, x ~ N(theta, sigma), a global unit around the prior's mean,
theta ~ N(mu, sigma0), and which of the global units a client has follows a beta-Bernoulli process of mass gamma
(Yurochkin et al. 2019, section 3). Of a global unit with c matched client units, the posterior is kept by its natural
parameters G = mu / sigma0 + sum x / sigma and S = 1 / sigma0 + c / sigma; its mean G / S is the unit's estimate.
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
        max_units: global units from which on every client can add but one at a time.
    """

    sigma: float
    sigma0: float
    gamma: float
    max_units: int

    def precisions(self, counts: Tensor) -> Tensor:
        """S of global units that so many client units are matched to."""
        return 1 / self.sigma0 + counts / self.sigma


@dataclass(frozen=True)
class ClientUnits:
    """One client's units of a layer.

    Args:
        vectors: shape (units, own coordinates), float64.
        columns: where each of its coordinates lies among the global ones, shape (own coordinates,); the client's units
            are 0 in all others.
    """

    vectors: Tensor
    columns: Tensor


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
    client: ClientUnits, sums: Tensor, counts: Tensor, *, prior_mean: Tensor, clients: int, model: UnitModel
) -> Tensor:
    """Tell by how much matching each unit of a client raises the log posterior.

    With u = x / sigma and nu = mu / sigma0, matching to global unit k scores
    |u + G_k|^2 / (S_k + 1 / sigma) - |G_k|^2 / S_k + log(c_k / (J - c_k)), and making it the m-th new global unit
    |u + nu|^2 / (1 / sigma0 + 1 / sigma) - |nu|^2 sigma0 - 2 log m + 2 log(gamma / J).

    Args:
        client: its units; none of them is matched yet.
        sums: G of the global units, shape (global units, coordinates).
        counts: units matched to each, c, shape (global units,), float64.
        prior_mean: mu, shape (coordinates,).
        clients: their number, J.
        model: sigma, sigma0, gamma, and how many global units there should be.

    Returns:
        Shape (units, global units + places for new ones); at least as many columns as rows.
    """
    own = client.vectors / model.sigma
    norms = own.square().sum(1)[:, None]
    precisions = model.precisions(counts)
    popularity = counts.clamp(max=POPULARITY_CAP)
    sum_norms = sums.square().sum(1)
    sums_there = sums.gather(1, client.columns.expand(len(sums), -1))
    matched = norms + 2 * own @ sums_there.T + sum_norms
    existing = matched / (precisions + 1 / model.sigma) - sum_norms / precisions
    existing += torch.log(popularity / (clients - popularity))

    prior = prior_mean / model.sigma0
    prior_norm = prior.square().sum()
    alone = norms + 2 * (own @ prior[client.columns])[:, None] + prior_norm
    alone = alone / (1 / model.sigma0 + 1 / model.sigma) - prior_norm * model.sigma0
    units, known = len(own), len(sums)
    # Below the cap there is room for all; above it, for one, or for those that no existing unit is left for.
    room = min(units, max(model.max_units - known, units - known, 1))
    places = torch.arange(1, room + 1, dtype=sums.dtype, device=sums.device)
    fresh = alone + 2 * torch.log(model.gamma / (clients * places))
    return torch.cat([existing, fresh], 1)


def match(clients: Sequence[ClientUnits], *, prior_mean: Tensor, visits: Iterable[int], model: UnitModel) -> Matching:
    """Match the units of all clients, one client after the other given all others.

    At its first visit a client's units are matched to those that are there; at a later one they are first taken out,
    and global units that nobody else has vanish. Every visit solves an assignment problem exactly, but their sequence
    only climbs towards some maximum of the posterior: it depends on the visits' order.

    Args:
        clients: their units.
        prior_mean: mu, shape (coordinates,), float64.
        visits: numbers of the clients; each comes at least once. The units of the first make the first global units.
        model: what is matched by.

    Returns:
        The global units, and which of them each unit became.
    """
    state = _State(clients, prior_mean, model)
    for visited in visits:
        if visited in state.assignments:
            state.remove(visited)
        state.insert(visited)
    return Matching(
        units=state.sums / model.precisions(state.counts)[:, None],
        assignments=tuple(state.assignments[client] for client in range(len(clients))),
    )


class _State:
    """The global units while they change."""

    def __init__(self, clients: Sequence[ClientUnits], prior_mean: Tensor, model: UnitModel) -> None:
        self.clients = clients
        self.prior_mean = prior_mean
        self.model = model
        self.sums = prior_mean.new_empty(0, len(prior_mean))
        self.counts = prior_mean.new_empty(0)
        self.assignments: dict[int, Tensor] = {}

    def insert(self, visited: int) -> None:
        """Match a client's units to the global ones, or to new ones."""
        # Only who matches units should wait for it.
        from scipy.optimize import linear_sum_assignment

        client = self.clients[visited]
        gains = scores(
            client,
            self.sums,
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
        self.counts = torch.cat([self.counts, self.counts.new_zeros(added)])
        self._add(visited, chosen, 1)
        self.assignments[visited] = chosen

    def remove(self, visited: int) -> None:
        """Take a client's units out of the global ones, and number what is left anew."""
        self._add(visited, self.assignments.pop(visited), -1)
        kept = self.counts > 0
        self.sums, self.counts = self.sums[kept], self.counts[kept]
        numbers = kept.cumsum(0) - 1
        self.assignments = {other: numbers[slots] for other, slots in self.assignments.items()}

    def _add(self, visited: int, chosen: Tensor, sign: int) -> None:
        client = self.clients[visited]
        rows = self.sums[chosen]
        self.sums[chosen] = rows.index_add(1, client.columns, client.vectors, alpha=sign / self.model.sigma)
        self.counts[chosen] += sign
