"""Numbers of everything that is registered by name, on inputs that are made up and small."""

from dataclasses import fields, replace
from typing import Any

import torch

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.statistic import Statistic, statistics
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server_optimisers.configured import configure_server_optimiser
from fedfisher_core.methods.server_optimisers.optimiser import server_optimisers
from fedfisher_core.models.spec import ModelSpec, Parameters, parameters_of
from fedfisher_core.privacy.accountant import Noise
from fedfisher_core.privacy.fishers import PrivateLocal
from fedfisher_core.settings import Choice, PrivacySettings
from tests import tiny
from tests.golden.numbers import Golden, Numbers, file_of, own, summaries, summary
from tests.methods.every import clients, run

NETWORKS: dict[str, ModelSpec] = {"class_sums": tiny.LINEAR_WITH_BIAS, "class_gaussians": tiny.LINEAR_WITH_BIAS}
"""Of statistics that networks of several layers do not have."""
ROUNDS = 3
FEW_STEPS: dict[str, Any] = {"solver": {"name": "conjugate_gradients", "steps": 3, "damping": 1.0}}
# As they are written, results hang on rounding: on when a solver stops, and on which of units that tie are matched.
METHODS: dict[str, dict[str, Any]] = {"fedfisher_kfac": FEW_STEPS, "pfnm": {"gamma": 0.01}}
# All directions leave no deviations, and all frequencies no residuals.
STATISTICS: dict[str, dict[str, Any]] = {
    "input_moments": {"directions": 3},
    "fisher_directions": {"rank": 3},
    "class_moments": {"directions": 3, "frequencies": 2},
    "input_sums": {"numbers": 4},
}


def numbers_of_statistic(name: str) -> dict[str, Golden]:
    """Compute a statistic of an untrained network."""
    statistic, spec = own(statistics)[name], NETWORKS.get(name, tiny.TINY_WITH_BIAS)

    def network(seed: int) -> torch.nn.Module:
        # Larger weights make probabilities that are neither uniform nor certain.
        return spec.load({key: 2 * weight for key, weight in tiny.initial(spec, seed=seed).items()}).eval()

    local = replace(
        tiny.local(network(0), tiny.examples(23, spec=spec)), trainer=network, initial=parameters_of(network(1))
    )
    numbers = _summaries(statistic.compute(local, **STATISTICS.get(name, {})))
    if statistic.mechanisms is not None:
        noise = Noise(training=1.0, release=0.5, epsilon=1.0)
        held = {one.name: getattr(local, one.name) for one in fields(Local)}
        # With privacy, a dense Fisher is refused.
        held["approximations"] = frozenset({statistic.approximation} - {None})
        private = PrivateLocal(**held, privacy=PrivacySettings(epsilon=1.0, delta=1e-3), noise=noise)
        released = private.compute(statistic, STATISTICS.get(name, {}))
        numbers |= {f"released {key}": one for key, one in _summaries(released).items()}
    return {name: Golden(f"statistic {name!r}", file_of(statistic), numbers)}


def _summaries(statistic: Statistic) -> Numbers:
    # An eigenvector has no sign.
    return summaries({key: one.abs() if key == "directions" else one for key, one in statistic.tensors.items()})


def numbers_of_method(name: str) -> dict[str, Golden]:
    """Aggregate made-up uploads."""
    made = run(name, clients(name), **METHODS.get(name, {}))
    numbers: Numbers = {}
    for index, network in enumerate(made.networks):
        numbers |= summaries(network, f"network {index}/")
    if made.weights is not None:
        numbers["weights"] = summary(made.weights)
    if made.combiner is not None:
        numbers |= summaries(made.combiner, "combiner/")
    numbers |= dict(made.details)
    return {name: Golden(f"method {name!r}", file_of(methods.get(name).function), numbers)}


def numbers_of_server_optimiser(name: str) -> dict[str, Golden]:
    """Take a few steps, each on an aggregate that differs a little from the weights."""
    bound = configure_server_optimiser(name, {name: Choice()})
    weights = tiny.initial()
    moments: dict[str, Parameters] = bound.begin(weights)
    for round_number in range(ROUNDS):
        change = tiny.initial(seed=1 + round_number)
        aggregate = {key: weight + 0.1 * change[key] for key, weight in weights.items()}
        weights, moments = bound.advance(weights, aggregate, moments)
    numbers = summaries(weights)
    for moment, tensors in moments.items():
        numbers |= summaries(tensors, f"{moment}/")
    return {name: Golden(f"server optimiser {name!r}", file_of(server_optimisers.get(name).function), numbers)}
