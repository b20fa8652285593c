"""What Fishers of many classes cost and lose: exact, truncated and sampled ones of K-FAC and the diagonal.

python -m benchmarks.many_classes time         seconds against 30 epochs of the same client's training, and errors
python -m benchmarks.many_classes noise        errors of the sampled estimator over seeds
python -m benchmarks.many_classes accuracy     FedFisher(K-FAC)'s accuracy with each, over seeds

The images are pairs of digits (see `digit_pairs`), of as many classes as are asked for. With --dataset, accuracies are
of another data set, which is looked for in FEDFISHER_DATA_DIR.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.digit_pairs import CLASSES, training_pairs, write_pairs
from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.specs import DATA_DIR_VARIABLE
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import open_store
from fedfisher_core.experiments.benchmark.plan import make_plan, make_rows
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import Estimator, Exact, MonteCarlo, Truncated
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import TrainSettings
from fedfisher_core.settings.reading import validate

EPOCHS = 30
UNSURE_EPOCHS = 4
"""After these, the network of most classes is far from sure of its own examples."""
TARGET = 0.25
"""Of the seconds of the training, at 43 and 100 classes."""
ESTIMATORS: Mapping[str, Estimator] = {
    "exact": Exact(),
    "truncated 0.001": Truncated(0.001),
    "truncated 0.01": Truncated(0.01),
    "truncated 0.1": Truncated(0.1),
    "at most 8": Truncated(0.01, 8),
    "at most 16": Truncated(0.01, 16),
    "at most 24": Truncated(0.01, 24),
    "sampled 1": MonteCarlo(1),
    "sampled 4": MonteCarlo(4),
}
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "exact": {"estimator": "exact"},
    "truncated 0.001": {"estimator": "truncated", "tolerance": 0.001, "directions": None},
    "truncated 0.01": {"estimator": "truncated", "tolerance": 0.01, "directions": None},
    "truncated 0.1": {"estimator": "truncated", "tolerance": 0.1, "directions": None},
    "at most 8": {"estimator": "truncated", "tolerance": 0.01, "directions": 8},
    "at most 16": {"estimator": "truncated", "tolerance": 0.01, "directions": 16},
    "at most 24": {"estimator": "truncated", "tolerance": 0.01, "directions": 24},
    "sampled 1": {"estimator": "monte_carlo", "samples": 1},
    "sampled 4": {"estimator": "monte_carlo", "samples": 4},
}


def trained_client(classes: int, count: int, epochs: int = EPOCHS) -> tuple[torch.nn.Module, Examples, float]:
    """Train LeNet as a client does: the network, its examples, and the seconds."""
    examples = training_pairs(classes, count)
    spec = ModelSpec("lenet", Images(1, 28, 28), classes=classes)
    generator = torch.Generator().manual_seed(0)
    network = spec.load(spec.initialise(generator))
    begun = time.perf_counter()
    train(network, examples, TrainSettings(epochs=epochs), generator=generator)
    return network.eval(), examples, time.perf_counter() - begun


def relative(found: list[Tensor], expected: list[Tensor]) -> float:
    """Relative error of many tensors in the norm of all their elements."""
    lost = sum(float((one - other).double().square().sum()) for one, other in zip(found, expected, strict=True))
    return (lost / sum(float(one.double().square().sum()) for one in expected)) ** 0.5


def scaled_outputs(fisher: Fisher, nominal: int) -> list[Tensor]:
    """K-FAC's factors of the layers' outputs, in a scale that no estimator changes."""
    assert fisher.kfac is not None
    return [block.outputs * nominal**0.5 for block in fisher.kfac.values()]


def errors(found: Fisher, exact: Fisher, nominal: int, classes: int) -> tuple[float, float, float]:
    """Relative errors of the trace, of the diagonal, and of K-FAC's output factors."""
    assert found.diagonal is not None
    assert exact.diagonal is not None
    traces = [sum(float(one.double().sum()) for one in fisher.values()) for fisher in (found.diagonal, exact.diagonal)]
    return (
        abs(traces[0] / traces[1] - 1),
        relative(list(found.diagonal.values()), list(exact.diagonal.values())),
        relative(scaled_outputs(found, nominal), scaled_outputs(exact, classes)),
    )


def nominal(estimator: Estimator, classes: int) -> int:
    """C' of an estimator."""
    return estimator.samples if isinstance(estimator, MonteCarlo) else classes


def print_times(count: int, repeats: int) -> None:
    """Print each estimator's seconds and errors for each number of classes."""
    print(f"LeNet, {count} images, {torch.get_num_threads()} threads; K-FAC and diagonal; medians of {repeats}")
    for classes in CLASSES:
        network, examples, seconds = trained_client(classes, count)
        print(f"{classes} classes: {EPOCHS} epochs {seconds:.1f} s")
        _print_times(network, examples, seconds, classes, repeats)
    unsure, examples, _ = trained_client(classes, count, UNSURE_EPOCHS)
    mass = 1 - unsure(examples.inputs).softmax(1).max(1).values.mean().item()
    print(
        f"{classes} classes, a network that is unsure, after {UNSURE_EPOCHS} epochs: mean of 1 - largest p {mass:.2f}"
    )
    _print_times(unsure, examples, seconds, classes, repeats)


def _print_times(network: torch.nn.Module, examples: Examples, seconds: float, classes: int, repeats: int) -> None:
    exact = compute_fisher(network, examples.inputs)
    for name, estimator in ESTIMATORS.items():
        taken, fisher = [], exact
        for _ in range(repeats):
            generator = torch.Generator().manual_seed(0)
            begun = time.perf_counter()
            fisher = compute_fisher(network, examples.inputs, estimator=estimator, generator=generator)
            taken.append(time.perf_counter() - begun)
        share = statistics.median(taken) / seconds
        trace, diagonal, factors = errors(fisher, exact, nominal(estimator, classes), classes)
        met = "" if classes == min(CLASSES) else f"  {'met' if share <= TARGET else 'MISSED'} (<= {TARGET:.0%})"
        print(
            f"  {name:16} {statistics.median(taken):7.2f} s, {share:6.1%} of training; errors: trace {trace:.4f}, "
            f"diagonal {diagonal:.4f}, factors {factors:.4f}{met}",
            flush=True,
        )


def print_noise(count: int, repeats: int) -> None:
    """Print the root mean square errors of the sampled estimator over seeds."""
    print(f"LeNet; root mean square over {repeats} seeds of relative errors of sampled Fishers")
    for classes in (min(CLASSES), max(CLASSES)):
        network, examples, _ = trained_client(classes, count)
        for some in (count // 4, count):
            # Every so many, so that all classes are there.
            inputs = examples.inputs[:: count // some]
            exact = compute_fisher(network, inputs)
            for samples in (1, 4, 16):
                found = [
                    errors(
                        compute_fisher(
                            network,
                            inputs,
                            estimator=MonteCarlo(samples),
                            generator=torch.Generator().manual_seed(seed),
                        ),
                        exact,
                        samples,
                        classes,
                    )
                    for seed in range(repeats)
                ]
                trace, diagonal, factors = (
                    statistics.fmean(value**2 for value in values) ** 0.5 for values in zip(*found, strict=True)
                )
                print(
                    f"  {classes} classes, {some} images, {samples} samples: trace {trace:.4f}, diagonal "
                    f"{diagonal:.3f}, factors {factors:.3f}; trace times root of images and samples "
                    f"{trace * (some * samples) ** 0.5:.2f}",
                    flush=True,
                )


def print_accuracies(dataset: str | None, classes: int, count: int, *, alpha: float, epochs: int, seeds: int) -> None:
    """Print FedFisher(K-FAC)'s accuracy with each estimator; clients are trained once for all of them."""
    exact: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        if dataset is None:
            dataset = write_pairs(Path(folder) / "data", classes, count)
            os.environ[DATA_DIR_VARIABLE] = str(Path(folder) / "data")
        print(f"{dataset}, {count} images, 5 clients, Dirichlet {alpha:g}, LeNet, {epochs} epochs, {seeds} seeds")
        for name, fisher in SETTINGS.items():
            content = {
                "name": "many_classes",
                "seeds": list(range(seeds)),
                "data": {"dataset": dataset, "examples": count, "validation_size": 0},
                "partition": {"alpha": alpha, "clients": 5},
                "train": {"epochs": epochs},
                "fisher": fisher,
                "methods": {"fedfisher_kfac": {}, "fedavg": {}},
                "run": {"device": "cpu", "store": str(Path(folder) / "store"), "reports": folder},
            }
            plan = make_plan(validate(BenchmarkSettings, content))
            rows = make_rows(plan, execute(plan.jobs, open_store(plan.settings.run.store)))
            by_method: dict[str, list[float]] = {}
            for row in sorted(rows, key=lambda row: row.seed):
                by_method.setdefault(row.method, []).append(row.accuracy)
            scatters = [row.fisher_scatter for row in rows if row.fisher_scatter is not None]
            found = by_method["fedfisher_kfac"]
            exact = exact or found
            if name == "exact":
                print(f"  {'FedAvg':16} {_shown(by_method['fedavg'])}")
            lost = [one - other for one, other in zip(found, exact, strict=True)]
            scatter = f"; scatter {statistics.fmean(scatters):.3f}" if scatters else ""
            print(
                f"  {name:16} {_shown(found)}; less exact's: {' '.join(f'{one:+.4f}' for one in lost)}{scatter}",
                flush=True,
            )


def _shown(values: list[float]) -> str:
    return f"{statistics.fmean(values):.4f} (deviation over seeds {statistics.stdev(values):.4f})"


def main() -> None:
    """Run the part that is named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["time", "noise", "accuracy"])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dataset", help="of `accuracy`; default: pairs of digits")
    parser.add_argument("--classes", type=int, default=100, help="of `accuracy` on pairs of digits")
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of `accuracy`; after few, networks are unsure")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    parts: dict[str, Callable[[], None]] = {
        "time": lambda: print_times(arguments.examples, arguments.repeats),
        "noise": lambda: print_noise(arguments.examples, arguments.repeats),
        "accuracy": lambda: print_accuracies(
            arguments.dataset,
            arguments.classes,
            arguments.examples,
            alpha=arguments.alpha,
            epochs=arguments.epochs,
            seeds=arguments.seeds,
        ),
    }
    parts[arguments.part]()


if __name__ == "__main__":
    main()
