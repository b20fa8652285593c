"""The plan of the two-layer experiment: the theory of FedFisher, measured (Section 3, Figure 1)."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.job import Job, NoInputs, Numerics
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Artifact, Content, read_document, understood
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.experiments.two_layer.rows import TwoLayerRow, rows_of
from fedfisher_core.experiments.two_layer.settings import TwoLayerGrid, TwoLayerSettings

_ERRORS = "errors.json"


def synthetic_clients(
    generator: np.random.Generator,
    *,
    clients: int,
    samples: int,
    dimensions: int,
    model_heterogeneity: float,
    data_heterogeneity: float,
    noise: float,
) -> tuple[Tensor, Tensor]:
    """Draw each client's samples from its own distribution.

    Client i draws a model w_i ~ N(u_i, I) with u_i ~ N(0, model_heterogeneity), and a centre v_i ~ N(B_i, I)
    with B_i ~ N(0, data_heterogeneity). Its inputs are N(v_i, S), S diagonal with S_jj = j^-1.2, scaled to
    norm 1 (Assumption 2); its targets are w_i . x + noise.

    Args:
        samples: n, of each client.
        dimensions: p.
        model_heterogeneity: variance of u_i.
        data_heterogeneity: variance of B_i.
        noise: standard deviation of the targets' noise.

    Returns:
        Inputs of shape (clients, n, p) and targets of shape (clients, n), in double precision.
    """
    deviations = np.arange(1, dimensions + 1) ** -0.6
    inputs, targets = [], []
    for _ in range(clients):
        model = generator.normal(generator.normal(0, model_heterogeneity**0.5), 1, dimensions)
        centre = generator.normal(generator.normal(0, data_heterogeneity**0.5), 1, dimensions)
        points = generator.normal(centre, deviations, (samples, dimensions))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        inputs.append(points)
        targets.append(points @ model + generator.normal(0, noise, samples))
    return torch.from_numpy(np.stack(inputs)), torch.from_numpy(np.stack(targets))


def predict(weights: Tensor, signs: Tensor, inputs: Tensor) -> Tensor:
    """Compute the network's outputs f(x), shape (..., n).

    Args:
        weights: w_r, shape (..., m, p).
        signs: a_r, each 1 or -1, shape (m,).
        inputs: shape (..., n, p).
    """
    return (inputs @ weights.mT).relu() @ signs / math.sqrt(len(signs))


def active_units(weights: Tensor, inputs: Tensor) -> Tensor:
    """Find the hidden units that each input switches on: 1 where x . w_r > 0, else 0, shape (..., n, m)."""
    return (inputs @ weights.mT > 0).to(weights.dtype)


def combine_gradients(coefficients: Tensor, active: Tensor, signs: Tensor, inputs: Tensor) -> Tensor:
    """Sum the network's gradients over samples: sum_k c_k df(x_k)/dw = J^T c, shape (..., m, p).

    Args:
        coefficients: c, shape (..., n).
        active: units that are switched on at the weights of the gradients, shape (..., n, m).
        signs: shape (m,).
        inputs: shape (..., n, p).
    """
    scale = signs[:, None] / math.sqrt(len(signs))
    return scale * ((active * coefficients[..., None]).mT @ inputs)


def training_error(weights: Tensor, signs: Tensor, inputs: Tensor, targets: Tensor) -> float:
    """Mean of the squared loss (z - y)^2 / 2 over all samples."""
    return 0.5 * (predict(weights, signs, inputs) - targets).square().mean().item()


def local_models(
    start: Tensor,
    signs: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    learning_rate: float,
    steps: Sequence[int],
) -> Iterator[Tensor]:
    """Train one network at each client by full-batch gradient descent, all from one start (Algorithm 1).

    Args:
        start: the common initial weights, shape (m, p).
        signs: shape (m,).
        inputs: each client's, shape (clients, n, p).
        targets: shape (clients, n).
        learning_rate: eta.
        steps: numbers of steps, increasing.

    Yields:
        The clients' weights after each number of steps, shape (clients, m, p).
    """
    scale = math.sqrt(len(signs))
    weights = start.expand(len(inputs), -1, -1).clone()
    done = 0
    for target in steps:
        for _ in range(target - done):
            hidden = inputs @ weights.mT
            active = (hidden > 0).to(weights.dtype)
            errors = (hidden * active) @ signs / scale - targets
            gradient = combine_gradients(errors / inputs.shape[1], active, signs, inputs)
            weights.sub_(gradient, alpha=learning_rate)
        done = target
        yield weights.clone()


def gram_matrix(active: Tensor, inputs: Tensor) -> Tensor:
    """Compute J J^T, with elements x_k . x_l times the share of units that both samples switch on.

    Args:
        active: units that each sample switches on, at the weights of its client, shape (samples, m).
        inputs: shape (samples, p).
    """
    return (inputs @ inputs.T) * (active @ active.T) / active.shape[1]


def nearest_minimiser(weights: Tensor, signs: Tensor, inputs: Tensor, *, cutoff: float = 1e-10) -> Tensor:
    """Find the FedFisher global model, shape (m, p): the minimiser nearest to the mean of the clients (Eq. 7).

    Clients hold equal numbers of samples and have equal weights.

    Args:
        weights: the clients' trained weights, shape (clients, m, p).
        signs: the second layer, 1 or -1, shape (m,).
        inputs: the clients' inputs, shape (clients, n, p).
        cutoff: eigenvalues of J J^T up to this fraction of the largest count as 0.
    """
    mean = weights.mean(dim=0)
    active = active_units(weights, inputs)
    linear = ((inputs @ (weights - mean).mT) * active) @ signs / math.sqrt(len(signs))
    samples = inputs.flatten(0, 1)
    active = active.flatten(0, 1)
    eigenvalues, vectors = torch.linalg.eigh(gram_matrix(active, samples))
    kept = eigenvalues > cutoff * eigenvalues[-1]
    basis = vectors[:, kept]
    coefficients = basis @ ((basis.T @ linear.flatten()) / eigenvalues[kept])
    return mean + combine_gradients(coefficients, active, signs, samples)


@dataclass(frozen=True)
class Errors:
    """Training errors of the models of one federation: mean of (z - y)^2 / 2 over the data of all clients.

    Args:
        fedfisher: of the FedFisher global model with full Fishers.
        fedavg: of the mean of the clients' models.
        local: of each client's own model on its own data.
    """

    fedfisher: float
    fedavg: float
    local: float


@dataclass(frozen=True)
class SeedErrors:
    """The errors of one seed: along the first curve, one a width, and along the second, one a number of steps."""

    widths: tuple[Errors, ...]
    steps: tuple[Errors, ...]


def measure_seed(settings: TwoLayerGrid, seed: int) -> SeedErrors:
    """Measure both curves on one federation; equal settings and seeds give equal errors.

    Args:
        settings: of the experiment; its seeds do not matter.

    Raises:
        DivergedClientError: names the client whose training error is not finite, and where.
    """
    by_width = [_measure(settings, seed, width, [settings.steps_of_widths]) for width in settings.widths]
    return SeedErrors(
        widths=tuple(errors for (errors,) in by_width),
        steps=tuple(_measure(settings, seed, settings.width_of_steps, settings.steps)),
    )


def _measure(settings: TwoLayerGrid, seed: int, width: int, steps: Sequence[int]) -> list[Errors]:
    inputs, targets = synthetic_clients(
        np.random.default_rng([seed, 0]),
        clients=settings.clients,
        samples=settings.samples,
        dimensions=settings.dimensions,
        model_heterogeneity=settings.model_heterogeneity,
        data_heterogeneity=settings.data_heterogeneity,
        noise=settings.noise,
    )
    signs, start = _initial_network(np.random.default_rng([seed, 1, width]), width, settings.dimensions)
    trained = local_models(start, signs, inputs, targets, learning_rate=settings.learning_rate, steps=steps)
    measured = []
    for number, weights in zip(steps, trained, strict=True):
        for client, own in enumerate(weights):
            if not math.isfinite(training_error(own, signs, inputs[client], targets[client])):
                raise DivergedClientError(
                    f"client {client} of seed={seed}: the training error is not finite at width {width} after "
                    f"{number} steps of two_layer.learning_rate={settings.learning_rate:g}"
                )
        solution = nearest_minimiser(weights, signs, inputs, cutoff=settings.cutoff)
        measured.append(
            Errors(
                fedfisher=training_error(solution, signs, inputs, targets),
                fedavg=training_error(weights.mean(dim=0), signs, inputs, targets),
                local=training_error(weights, signs, inputs, targets),
            )
        )
    return measured


def _initial_network(generator: np.random.Generator, width: int, dimensions: int) -> tuple[Tensor, Tensor]:
    signs = generator.choice([-1.0, 1.0], width)
    return torch.from_numpy(signs), torch.from_numpy(generator.normal(size=(width, dimensions)))


@dataclass(frozen=True)
class MeasureSeed(Job[NoInputs]):
    """Measure both curves with one seed; on the CPU, as the linear systems are too small for a GPU."""

    kind: ClassVar[str] = "two_layer"
    version: ClassVar[int] = 1

    grid: TwoLayerGrid
    seed: int

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; other seeds of the grid do not matter."""
        settings = self.grid.model_dump(mode="json", exclude={"seeds"})
        return settings | {"seed": self.seed} | self.numerics.described()

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose training error is not finite.
        """
        begun = time.perf_counter()
        measured = measure_seed(self.grid, self.seed)
        return Content(documents={_ERRORS: asdict(measured)}, timings={"seconds": time.perf_counter() - begun})


@understood
def read_seed(artifact: Artifact) -> SeedErrors:
    """Read the errors that a `MeasureSeed` measured, to the last bit."""
    return TypeAdapter(SeedErrors).validate_python(read_document(artifact, _ERRORS))


@dataclass(frozen=True)
class TwoLayerPlan(Plan):
    """The work of the two-layer experiment: one job a seed."""

    settings: TwoLayerSettings
    seeds: tuple[MeasureSeed, ...]


def make_plan(settings: TwoLayerSettings) -> TwoLayerPlan:
    """List the jobs."""
    grid, numerics = settings.two_layer, Numerics.of(settings.run)
    seeds = tuple(
        MeasureSeed(grid, seed, name=f"two-layer networks: seed={seed}", numerics=numerics) for seed in grid.seeds
    )
    return TwoLayerPlan(jobs=seeds, settings=settings, seeds=seeds)


def make_rows(plan: TwoLayerPlan, outcome: Outcome) -> list[TwoLayerRow]:
    """Lay out the errors of all seeds that did not fail."""
    settings = plan.settings
    found = {job.seed: outcome.artifacts[job.name] for job in plan.seeds if job.name in outcome.artifacts}
    return [
        row
        for seed, artifact in found.items()
        for row in rows_of(settings.name, settings.two_layer, seed, read_seed(artifact), artifact.key)
    ]
