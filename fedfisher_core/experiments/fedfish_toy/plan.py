"""FedFish's toy regression: its plan, its data, and errors of clients' and global models at one overlap."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from fedfisher_core.client.statistics.squared_gradients import SquaredGradients, sum_squared_gradients
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.training import train
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.job import Job, NoInputs, Numerics
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.seeds import Stream, numpy_generator, torch_generator
from fedfisher_core.engine.store import Artifact, Content, read_document, understood
from fedfisher_core.experiments.contract import Plan
from fedfisher_core.experiments.fedfish_toy.rows import FedFishToyRow, rows_of
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings, FunctionName, RegressionGrid
from fedfisher_core.methods.fedfish import step_from
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.models.spec import ModelSpec, Parameters, parameters_of
from fedfisher_core.settings import TrainSettings

LOW, HIGH = -1.0, 1.0
"""The domain, which the clients' intervals cover together."""

_MEASURED = "measured.json"


def interval_of(client: int, clients: int, overlap: float) -> tuple[float, float]:
    """Find a client's interval of the domain: its lower and upper end.

    All intervals have the same length l = (HIGH - LOW) / (1 + (clients - 1) (1 - overlap)). Each begins
    (1 - overlap) l after the one before it, and the last ends where the domain does.

    Args:
        client: its number, from 0.
        overlap: part of its interval that a client shares with the next one, from 0 to 1.
    """
    length = (HIGH - LOW) / (1 + (clients - 1) * (1 - overlap))
    begin = LOW + client * (1 - overlap) * length
    return begin, begin + length


def true_values(function: FunctionName, inputs: Tensor) -> Tensor:
    """Evaluate the function without noise: sin(2 pi u), or sin(4 pi u^2) of a chirp, with u = (x + 1) / 2.

    Args:
        inputs: from -1 to 1, any shape.
    """
    place = (inputs - LOW) / (HIGH - LOW)
    match function:
        case "sine":
            return torch.sin(2 * math.pi * place)
        case "chirp":
            return torch.sin(4 * math.pi * place**2)


def samples_of(client: int, grid: RegressionGrid, overlap: float, seed: int) -> Examples:
    """Draw a client's samples: inputs of shape (samples, 1) and targets of shape (samples,), both float32.

    The relative positions within the interval and the noise do not depend on the overlap, so that overlaps differ only
    in the intervals.

    Args:
        client: its number, from 0.
    """
    generator = numpy_generator(seed, Stream.SAMPLE, client)
    low, high = interval_of(client, grid.clients, overlap)
    inputs = torch.from_numpy(low + (high - low) * generator.random(grid.samples))
    noise = torch.from_numpy(grid.noise * generator.normal(size=grid.samples))
    targets = true_values(grid.function, inputs) + noise
    return Examples(inputs=inputs[:, None].float(), labels=targets.float())


def domain_points(points: int) -> Tensor:
    """Spread inputs evenly over the domain, both ends included, float32, shape (points, 1)."""
    return torch.from_numpy(np.linspace(LOW, HIGH, points))[:, None].float()


@dataclass(frozen=True)
class GlobalModel:
    """What one method makes of the clients' models.

    Args:
        global_error: mean of (z - f(x))^2 over the points of the domain, f being the true function without noise.
        client_errors: mean of (z - y)^2 over each client's own samples.
        curve: its outputs z at the points.
    """

    global_error: float
    client_errors: tuple[float, ...]
    curve: tuple[float, ...]


@dataclass(frozen=True)
class Stage:
    """The models after a number of local epochs.

    Args:
        local_errors: mean of (z - y)^2 of each client's own model over its own samples.
        local_curves: outputs of each client's model at the points.
        fedfish: their mean, weighted by squared gradients.
    """

    local_errors: tuple[float, ...]
    local_curves: tuple[tuple[float, ...], ...]
    fedavg: GlobalModel
    fedfish: GlobalModel


@dataclass(frozen=True)
class Measured:
    """All that is measured of one federation.

    Args:
        stages: one for each of the settings' numbers of epochs.
    """

    inputs: tuple[tuple[float, ...], ...]
    targets: tuple[tuple[float, ...], ...]
    stages: tuple[Stage, ...]


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss (z - y)^2 / 2 of each sample, shape (batch,).

    Args:
        outputs: z, shape (batch, 1).
        targets: y, shape (batch,).
    """
    return (outputs[:, 0] - targets).square() / 2


def mean_squared_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of `squared_errors` over a batch."""
    return squared_errors(outputs, targets).mean()


def fedavg_of(initial: Parameters, uploads: Sequence[Upload], *, global_step: float) -> Parameters:
    """Step from the initial weights by the mean of the clients' changes: w - eta sum_i p_i (w - w_i).

    At eta = 1 this is the mean of the w_i to the last bit.

    Args:
        initial: the weights w that all clients started from.
        uploads: the weights w_i.
        global_step: eta.
    """
    mean = mean_parameters(uploads)
    return {name: torch.lerp(initial[name], mean[name], global_step) for name in mean}


def measure_overlap(grid: RegressionGrid, overlap: float, seed: int) -> Measured:
    """Train the clients of one federation, and merge them after each number of local epochs.

    Equal settings, overlaps and seeds give equal results.

    Args:
        grid: of the experiment; its overlaps and seeds do not matter.

    Raises:
        DivergedClientError: names the client whose loss or weights are not finite, and where.
    """
    spec = ModelSpec("mlp", Vectors(1), classes=1, bias=True, widths=grid.widths)
    initial = spec.initialise(torch_generator(seed, Stream.INITIALISATION))
    examples = [samples_of(client, grid, overlap, seed) for client in range(grid.clients)]
    networks = [spec.load(initial) for _ in examples]
    orders = [torch_generator(seed, Stream.CLIENT, client) for client in range(grid.clients)]
    stages, done = [], 0
    for epochs in grid.epochs:
        for client, (network, own) in enumerate(zip(networks, examples, strict=True)):
            # Plain SGD has no state except its weights and the order of its batches, so training can go on from them.
            settings = TrainSettings(
                epochs=epochs - done, learning_rate=grid.learning_rate, momentum=0, batch_size=grid.batch_size
            )
            try:
                train(network, own, settings, generator=orders[client], losses=squared_errors)
            except DivergedClientError as error:
                raise DivergedClientError(
                    f"client {client} at overlap={overlap:g} with seed={seed}: {error} of the {epochs - done} after "
                    f"epoch {done}, with toy.learning_rate={grid.learning_rate:g}"
                ) from error
        uploads = [
            upload_of(network, own, grid.batch_size, torch_generator(seed, Stream.FISHER, client))
            for client, (network, own) in enumerate(zip(networks, examples, strict=True))
        ]
        stages.append(_stage(grid, spec, initial, examples, uploads))
        done = epochs
    return Measured(
        inputs=tuple(_numbers(own.inputs) for own in examples),
        targets=tuple(_numbers(own.labels) for own in examples),
        stages=tuple(stages),
    )


def upload_of(network: nn.Module, examples: Examples, batch_size: int, generator: torch.Generator) -> Upload:
    """Compute what a FedFish client sends under the squared loss: weights and summed squared gradients.

    Args:
        network: after training.
        batch_size: of the gradients that are squared.
    """
    batches = torch.randperm(len(examples), generator=generator).split(batch_size)
    squares = sum_squared_gradients(network, examples, batches, mean_squared_loss)
    statistics: dict[type[Statistic], Statistic] = {
        Weights: Weights(parameters_of(network)),
        SquaredGradients: SquaredGradients(squares),
    }
    return Upload(num_examples=len(examples), statistics=statistics)


def _stage(
    grid: RegressionGrid, spec: ModelSpec, initial: Parameters, examples: Sequence[Examples], uploads: Sequence[Upload]
) -> Stage:
    points = domain_points(grid.points)
    local = [_outputs_of(spec, upload[Weights].tensors) for upload in uploads]

    def merged(method: Callable[..., Parameters]) -> GlobalModel:
        outputs = _outputs_of(spec, method(initial, uploads, global_step=grid.global_step))
        curve = outputs(points)
        return GlobalModel(
            global_error=_mean_square(curve - true_values(grid.function, points)[:, 0]),
            client_errors=tuple(_mean_square(outputs(own.inputs) - own.labels) for own in examples),
            curve=_numbers(curve),
        )

    return Stage(
        local_errors=tuple(
            _mean_square(outputs(own.inputs) - own.labels) for outputs, own in zip(local, examples, strict=True)
        ),
        local_curves=tuple(_numbers(outputs(points)) for outputs in local),
        fedavg=merged(fedavg_of),
        fedfish=merged(step_from),
    )


def _outputs_of(spec: ModelSpec, parameters: Parameters) -> Callable[[Tensor], Tensor]:
    network = spec.load(parameters).eval()

    def outputs(inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return network(inputs)[:, 0]

    return outputs


def _mean_square(errors: Tensor) -> float:
    return errors.double().square().mean().item()


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    return tuple(tensor.flatten().tolist())


@dataclass(frozen=True)
class MeasureOverlap(Job[NoInputs]):
    """Train the clients of one federation and merge them; on the CPU, as the networks are small."""

    kind: ClassVar[str] = "fedfish_toy"
    version: ClassVar[int] = 1

    grid: RegressionGrid
    overlap: float
    seed: int

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; other overlaps and seeds of the grid do not matter."""
        settings = self.grid.model_dump(mode="json", exclude={"overlaps", "seeds"})
        return settings | {"overlap": self.overlap, "seed": self.seed} | self.numerics.described()

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client whose loss or weights are not finite.
        """
        begun = time.perf_counter()
        measured = measure_overlap(self.grid, self.overlap, self.seed)
        return Content(documents={_MEASURED: asdict(measured)}, timings={"seconds": time.perf_counter() - begun})


@understood
def read_measured(artifact: Artifact) -> Measured:
    """Read what a `MeasureOverlap` measured, to the last bit."""
    return TypeAdapter(Measured).validate_python(read_document(artifact, _MEASURED))


@dataclass(frozen=True)
class FedFishToyPlan(Plan):
    """The work of the toy regression: one job for each overlap and seed."""

    settings: FedFishToySettings
    federations: tuple[MeasureOverlap, ...]


def make_plan(settings: FedFishToySettings) -> FedFishToyPlan:
    """List the jobs."""
    grid, numerics = settings.toy, Numerics.of(settings.run)
    federations = tuple(
        MeasureOverlap(grid, overlap, seed, name=f"toy regression: overlap={overlap!r}, seed={seed}", numerics=numerics)
        for overlap in grid.overlaps
        for seed in grid.seeds
    )
    return FedFishToyPlan(jobs=federations, settings=settings, federations=federations)


def make_rows(plan: FedFishToyPlan, outcome: Outcome) -> list[FedFishToyRow]:
    """Lay out the errors of all federations that did not fail."""
    settings = plan.settings
    found = [(job, outcome.artifacts[job.name]) for job in plan.federations if job.name in outcome.artifacts]
    return [
        row
        for job, artifact in found
        for row in rows_of(settings.name, settings.toy, job.overlap, job.seed, read_measured(artifact), artifact.key)
    ]
