"""FedFisher(K-FAC) and MaTS in single and in double precision: how far a solution depends on rounding.

    FEDFISHER_DATA_DIR=... python -m benchmarks.precision [CONFIG] [--set KEY=VALUE ...]

By default the clients are those of `benchmarks.solvers`, and accuracies are of training images that no client trained
on, with seeds that no report has. Methods' defaults come first, then other steps and dampings. "of the weights" is the
norm of the difference to the solution in double precision, relative to the norm of that solution. "inputs rounded" is
double precision after each entry of the factors was changed by as much as single precision rounds it. Seconds are
processor seconds of one thread. Nothing is compressed.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.clients import train_clients
from benchmarks.solvers import APART, CONFIG, DEFAULTS, both_fishers
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.partition import label_counts
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.solvers.exact import conjugate_gradients
from fedfisher_core.methods.solvers.quadratic import kronecker_quadratic
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec, Parameters

Round = Callable[[Tensor], Tensor]
"""What is done to each factor that a client sends before the objective is formed."""


@dataclass(frozen=True)
class Candidate:
    """Conjugate gradients as FedFisher runs them, with clients by their examples, or as MaTS does, with all alike."""

    by_examples: bool
    steps: int
    damping: float

    @property
    def label(self) -> str:
        """What the table calls it."""
        return f"{'K-FAC' if self.by_examples else 'MaTS'}, {self.steps} steps, damping {self.damping:g}"


CANDIDATES = (
    Candidate(True, 80, 0.1),
    Candidate(False, 100, 0.0),
    *(Candidate(True, steps, damping) for steps, damping in ((20, 0.1), (40, 0.1), (160, 0.1), (80, 0.03), (80, 0.3))),
    *(Candidate(False, steps, damping) for steps, damping in ((30, 0.0), (100, 0.1))),
)


@dataclass(frozen=True)
class Run:
    """One solution.

    Args:
        apart: difference to that in double precision, relative to its norm.
        accuracy: on images that no client trained on.
        seconds: of a processor.
    """

    apart: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class Clients:
    """What the server has of one federation, and images that no client trained on."""

    models: Sequence[Mapping[str, Tensor]]
    factors: Sequence[Mapping[str, Kronecker]]
    counts: Sequence[int]
    spec: ModelSpec
    held_out: Examples

    def solve(self, candidate: Candidate, rounded: Round) -> tuple[Parameters, float]:
        """Solve, and time it."""
        weights = self.counts if candidate.by_examples else [1] * len(self.counts)
        factors = [
            {name: Kronecker(rounded(one.inputs), rounded(one.outputs)) for name, one in each.items()}
            for each in self.factors
        ]
        precision = next(iter(factors[0].values())).inputs.dtype
        models = [{name: one.to(precision) for name, one in model.items()} for model in self.models]
        began = time.process_time()
        quadratic = kronecker_quadratic(models, factors, [weight / sum(weights) for weight in weights])
        steps, damping = candidate.steps, candidate.damping
        solution = conjugate_gradients(quadratic, steps=steps, damping=damping, check_every=steps)
        return solution.parameters, time.process_time() - began

    def measure(self, candidate: Candidate) -> dict[str, Run]:
        """Solve in both precisions, and once more after the factors were rounded."""
        ways: dict[str, Round] = {"double": Tensor.double, "single": Tensor.float, "inputs rounded": rounded_once()}
        solved = {name: self.solve(candidate, way) for name, way in ways.items()}
        exact = flat(solved["double"][0])
        return {
            name: Run(
                apart=float((flat(parameters) - exact).norm() / exact.norm()),
                accuracy=accuracy(
                    self.spec.load({key: one.float() for key, one in parameters.items()}).eval(), self.held_out
                ),
                seconds=seconds,
            )
            for name, (parameters, seconds) in solved.items()
        }


def rounded_once() -> Round:
    """Change a symmetric matrix by relative errors as large as half a unit in single precision's last place."""
    generator = torch.Generator().manual_seed(0)

    def change(matrix: Tensor) -> Tensor:
        errors = torch.rand(matrix.shape, generator=generator, dtype=torch.float64) * 2 - 1
        symmetric = errors.triu() + errors.triu(1).mT
        return matrix.double() * (1 + torch.finfo(torch.float32).eps / 2 * symmetric)

    return change


def flat(parameters: Parameters) -> Tensor:
    """All numbers of a network, in double precision."""
    return torch.cat([one.double().flatten() for one in parameters.values()])


def clients_of(federations: Federations, federation: Federation) -> Clients:
    """Find or train the clients of a cell."""
    trained = train_clients(federations, federation)
    dataset = load_data(trained.inputs.data)
    return Clients(
        models=[client[Weights].tensors for client in trained.statistics],
        factors=[KFAC.of(client[KFAC].tensors).factors for client in trained.statistics],
        counts=[sum(row) for row in label_counts(trained.inputs.partition)],
        spec=federation.spec,
        held_out=select(dataset.test, dataset.spec),
    )


def print_table(title: str, measured: Mapping[Candidate, Sequence[Mapping[str, Run]]]) -> None:
    """Print what depends on rounding in one setting: the mean over its seeds, and the largest in brackets."""
    print(f"\n{title}, {len(next(iter(measured.values())))} seeds")
    print(f"{'':32}{'off double, % of the weights':>30}{'accuracy, %':>26}{'seconds':>17}")
    columns = f"{'single':>15}{'inputs rounded':>15}{'double':>9}{'single less it':>17}{'double':>9}{'single':>8}"
    print(f"{'':32}{columns}")
    for candidate, seeds in measured.items():
        single = [100 * one["single"].apart for one in seeds]
        rounded = [100 * one["inputs rounded"].apart for one in seeds]
        less = [100 * (one["single"].accuracy - one["double"].accuracy) for one in seeds]
        print(
            f"{candidate.label:32}{statistics.fmean(single):7.2f} ({max(single):5.2f}){statistics.fmean(rounded):7.2f} "
            f"({max(rounded):5.2f}){100 * statistics.fmean(one['double'].accuracy for one in seeds):9.2f}"
            f"{statistics.fmean(less):9.2f} ({max(less, key=abs):5.2f})"
            f"{statistics.median(one['double'].seconds for one in seeds):9.2f}"
            f"{statistics.median(one['single'].seconds for one in seeds):8.2f}"
        )


def main() -> None:
    """Measure every candidate in every cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", type=Path, default=CONFIG)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs real images")
        return
    torch.set_num_threads(1)
    overrides = [*APART, *(DEFAULTS if arguments.config == CONFIG else ()), *arguments.overrides]
    federations = both_fishers(arguments.config, overrides)
    measured: dict[str, dict[Candidate, list[Mapping[str, Run]]]] = {}
    for federation in federations.all:
        table = measured.setdefault(federation.setting.name, {candidate: [] for candidate in CANDIDATES})
        clients = clients_of(federations, federation)
        for candidate in CANDIDATES:
            table[candidate].append(clients.measure(candidate))
            print(f"{federation.setting.label}: {candidate.label}", file=sys.stderr, flush=True)
    for setting, table in measured.items():
        print_table(setting, table)


if __name__ == "__main__":
    main()
