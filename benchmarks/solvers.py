"""FedFisher's solvers against the optimiser of its authors, on the clients of a benchmark.

    FEDFISHER_DATA_DIR=... python -m benchmarks.solvers [CONFIG] [--set KEY=VALUE ...]

By default the clients are like those of configs/mnist_heterogeneity.yaml at alpha 0.1 on random splits; those that the
store lacks are trained first. As the default solver is chosen by these accuracies, they are of training images that
no client trained on, with seeds that no report has. Nothing is compressed. Seconds are processor seconds of one thread,
scoring on the validation images included; ratios are taken setting by setting, then their median. Accuracies are means
over seeds with their sample standard deviation.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.clients import train_clients
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.contract import load
from fedfisher_core.federation.aggregating import server_of
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.partition import label_counts
from fedfisher_core.methods.server import Server
from fedfisher_core.methods.shared.fedfisher import (
    ClosedForm,
    ConjugateGradients,
    GradientDescent,
    PaperDiagonal,
    PaperKronecker,
    Solver,
)
from fedfisher_core.methods.solvers.quadratic import Quadratic, diagonal_quadratic, kronecker_quadratic
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.reporting.measure import Measure
from fedfisher_core.settings import MethodEntry

CONFIG = Path("configs/mnist_heterogeneity.yaml")
APART = ("seeds=[100,101,102,103,104]", "data.held_out=5000")
DEFAULTS = ("partition.scheme=dirichlet_client", "partition.alpha=0.1", "report.published=null")
DEFAULT = "CG, 80 steps, damping 0.1"
AUTHORS = "authors' optimiser, 2000 steps"
# The authors' optimiser on Kronecker factors must be this many times slower, at no better objective or accuracy.
TARGET = 20

KRONECKER: dict[str, Solver] = {
    AUTHORS: PaperKronecker(),
    "gradient descent, 200 steps": GradientDescent(steps=200),
    **{f"CG, {steps} steps": ConjugateGradients(steps=steps, damping=0) for steps in (20, 40, 80, 160)},
    "CG, 80 steps, selected": ConjugateGradients(steps=80, damping=0, select=True),
    **{
        f"CG, 80 steps, damping {damping}": ConjugateGradients(steps=80, damping=damping)
        for damping in (0.03, 0.1, 0.3)
    },
}
DIAGONAL: dict[str, Solver] = {
    AUTHORS: PaperDiagonal(),
    "closed form": ClosedForm(),
    **{f"CG, {steps} steps": ConjugateGradients(steps=steps, damping=0) for steps in (10, 20, 40)},
    **{f"CG, 40 steps, damping {damping}": ConjugateGradients(steps=40, damping=damping) for damping in (0.1, 0.3)},
    "CG, 20 steps, selected": ConjugateGradients(steps=20, damping=0, select=True, check_every=5),
}


@dataclass(frozen=True)
class Measured:
    """What one solver did in one setting."""

    seconds: float
    selected: int
    objective: float
    accuracy: float


@dataclass(frozen=True)
class Trained:
    """One setting after its clients are trained.

    Args:
        quadratics: the objectives by the kind of Fisher.
        server: scores iterates on its validation set.
        held_out: images that no client trained on.
    """

    quadratics: Mapping[str, Quadratic]
    server: Server
    held_out: Examples

    def measure(self, kind: str, solver: Solver) -> Measured:
        """Time a solver, and measure what it returns on images that no client trained on."""
        began = time.process_time()
        solution = solver.minimise(self.quadratics[kind], self.server)
        seconds = time.process_time() - began
        right = accuracy(self.server.network(solution.parameters), self.held_out)
        return Measured(seconds, solution.selected, solution.objective, right)


def both_fishers(config: Path, overrides: Sequence[str]) -> Federations:
    """Read a benchmark, with the two methods whose solvers are measured in the place of its own."""
    settings = load(config, overrides)
    if not isinstance(settings, BenchmarkSettings):
        raise InputError(f"{config} has experiment={settings.experiment!r}; allowed: benchmark")
    if settings.data.held_out is None:
        raise InputError("data.held_out=null; allowed: training images to score on, as no solver is chosen on others")
    methods = {label: MethodEntry() for label in ("fedfisher_diag", "fedfisher_kfac")}
    return check_federations(settings.model_copy(update={"methods": methods}))


def train_federation(federations: Federations, federation: Federation) -> Trained:
    """Find or train the clients of a setting."""
    clients = train_clients(federations, federation)
    counts = [sum(row) for row in label_counts(clients.inputs.partition)]
    models = [client[Weights].tensors for client in clients.statistics]
    diagonals = [client[DiagonalFisher].tensors for client in clients.statistics]
    factors = [KFAC.of(client[KFAC].tensors).factors for client in clients.statistics]
    shares = [count / sum(counts) for count in counts]
    dataset = load_data(clients.inputs.data)
    return Trained(
        quadratics={
            "diagonal": diagonal_quadratic(models, diagonals, shares),
            "K-FAC": kronecker_quadratic(models, factors, shares),
        },
        server=server_of(federation, clients.inputs),
        held_out=select(dataset.test, dataset.spec),
    )


def print_table(title: str, measured: Mapping[str, Sequence[Measured]]) -> None:
    """Print the solvers of one kind of Fisher in one setting against the authors'."""
    authors = measured[AUTHORS]
    print(f"\n{title}, {len(authors)} seeds; 'lower': in how many the objective is no larger than the authors'")
    print(f"{'solver':36}{'seconds':>9}{'ratio':>8}{'objective':>12}{'lower':>7}  accuracy       selected step")
    for name, own in measured.items():
        ratio = statistics.median(a.seconds / o.seconds for a, o in zip(authors, own, strict=True))
        lower = sum(o.objective <= a.objective for a, o in zip(authors, own, strict=True))
        print(
            f"{name:36}{statistics.median(one.seconds for one in own):9.2f}{ratio:8.1f}"
            f"{statistics.fmean(one.objective for one in own):12.3e}{lower:4d}/{len(own)}"
            f"  {Measure.of([one.accuracy for one in own]).percent():13}"
            f"{statistics.median(one.selected for one in own):8.0f}"
        )


def print_target(measured: Mapping[str, Sequence[Measured]]) -> None:
    """Say how the default of FedFisher(K-FAC) stands to the authors' optimiser."""
    authors, own = measured[AUTHORS], measured[DEFAULT]
    ratio = statistics.median(a.seconds / o.seconds for a, o in zip(authors, own, strict=True))
    objective = statistics.fmean(o.objective for o in own) <= statistics.fmean(a.objective for a in authors)
    reached = statistics.fmean(o.accuracy for o in own) >= statistics.fmean(a.accuracy for a in authors)
    met = ratio >= TARGET and objective and reached
    print(
        f"the default of FedFisher(K-FAC): {ratio:.1f} times faster (target {TARGET}), objective no larger: "
        f"{objective}, mean accuracy no lower: {reached}: {'met' if met else 'not met'}"
    )


def main() -> None:
    """Measure every solver in every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", type=Path, default=CONFIG)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    if arguments.config == CONFIG and "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    torch.set_num_threads(1)
    overrides = [*APART, *(DEFAULTS if arguments.config == CONFIG else ()), *arguments.overrides]
    federations = both_fishers(arguments.config, overrides)
    solvers = {"diagonal": DIAGONAL, "K-FAC": KRONECKER}
    measured: dict[tuple[str, str], dict[str, list[Measured]]] = {}
    for federation in federations.all:
        setting, clients = federation.setting, train_federation(federations, federation)
        for kind, chosen in solvers.items():
            table = measured.setdefault((setting.name, kind), {name: [] for name in chosen})
            for name, solver in chosen.items():
                one = clients.measure(kind, solver)
                table[name].append(one)
                line = f"{setting.label}: {kind}, {name}: {one.seconds:.2f} s, {100 * one.accuracy:.2f} %"
                print(line, file=sys.stderr, flush=True)
    for (name, kind), table in measured.items():
        print_table(f"{name}, {kind}", table)
        if kind == "K-FAC":
            print_target(table)


if __name__ == "__main__":
    main()
