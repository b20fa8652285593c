"""What else Gaussian distillation could be given: the range of pixels, classes, label counts, and the prior once.

    FEDFISHER_DATA_DIR=... python -m benchmarks.pseudo_inputs [--seeds 101 102 103 104 105] [--models mlp lenet]

Five clients at alpha 0.1 train for ten epochs, and nothing is compressed. Accuracies are of 5,000 training images that
no client trained on, with seeds that no report has. A difference is to the method as it is, over the same seeds, with
the 95 % interval of the pair alone. `numbers` counts what a client sends as well as its network and its K-FAC. The
method that was built on it, `mixture_distillation`, is measured by `configs/ablation_classes.yaml`.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.clients import train_clients
from benchmarks.differences import columns
from benchmarks.imagined import (
    MORE,
    Client,
    Imagine,
    as_it_is,
    class_means,
    class_moments,
    clipped,
    of_more_directions,
)
from fedfisher_core.client.statistics.input_moments import DIRECTIONS
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.data.tensors import Examples, normalise, select
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.aggregating import server_of
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation, PartitionInputs
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.distillation import pseudo_inputs
from fedfisher_core.methods.distillation.pseudo_inputs import distil
from fedfisher_core.methods.server import Server
from fedfisher_core.methods.solvers.exact import conjugate_gradients
from fedfisher_core.methods.solvers.quadratic import Quadratic, kronecker_quadratic, with_penalty
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.settings.reading import validate

SETTINGS = (("mnist", "mlp"), ("fashion_mnist", "lenet"))
CLIENTS = 5
# The method's own defaults.
STEPS, SAMPLES, LEARNING_RATE, SOLVER_STEPS, DAMPING = 300, 64, 1e-3, 80, 0.1
BIAS_STEPS, BIAS_SAMPLES = 100, 1000

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Trained:
    """A federation after training.

    Args:
        clients: of it.
        server: builds networks, and holds the weights that all clients started from.
        quadratic: FedFisher's objective with K-FAC.
        models: the clients' weights.
        factors: of their K-FAC.
        held_out: images that no client trained on.
    """

    clients: tuple[Client, ...]
    server: Server
    quadratic: Quadratic
    models: tuple[Parameters, ...]
    factors: tuple[Mapping[str, Kronecker], ...]
    held_out: Examples


@dataclass(frozen=True)
class Variant:
    """A form of Gaussian distillation.

    Args:
        imagine: makes what draws inputs like a client's.
        numbers: that a client sends for it, by the size of an input and the number of classes it holds.
        prior: precision of the prior at the clients' start, which is added once to Fishers of one example.
        biases: whether the outputs get biases that bring the mean prediction on drawn inputs to the label counts.
    """

    imagine: Imagine
    numbers: Callable[[int, int], int]
    prior: float = 0.0
    biases: bool = False


def all_directions(held: int) -> int:
    """As many as the method sends, for each class."""
    return DIRECTIONS


def shared_directions(held: int) -> int:
    """As many as the method sends, over all classes."""
    return max(1, DIRECTIONS // held)


def moments_of(size: int, held: int) -> int:
    """Count the numbers of the method's own moments."""
    return (DIRECTIONS + 2) * size


VARIANTS = {
    "as it is": Variant(as_it_is, moments_of),
    f"{MORE} directions": Variant(of_more_directions, lambda size, held: (MORE + 2) * size),
    "clipped to the range of pixels": Variant(clipped(as_it_is), moments_of),
    "means of each class": Variant(class_means, lambda size, held: moments_of(size, held) + held * size),
    "moments of each class": Variant(class_moments(all_directions), lambda size, held: held * moments_of(size, held)),
    "moments of each class, 60 directions in all": Variant(
        class_moments(shared_directions), lambda size, held: held * (shared_directions(held) + 2) * size
    ),
    "biases by label counts": Variant(as_it_is, lambda size, held: moments_of(size, held) + held, biases=True),
    **{f"prior {prior:.0e} counted once": Variant(as_it_is, moments_of, prior=prior) for prior in (1e-4, 1e-3, 1e-2)},
    "all of them, prior 1e-3": Variant(
        clipped(class_moments(all_directions)),
        lambda size, held: held * moments_of(size, held) + held,
        prior=1e-3,
        biases=True,
    ),
}


def federations_of(
    dataset: str, model: str, seeds: Sequence[int], store: Path, *, alpha: float = 0.1, **data: int
) -> Federations:
    """Plan the federations of one setting, with settings of the data; 5,000 images are held out."""
    settings = {
        "name": "pseudo_inputs",
        "seeds": list(seeds),
        "data": {"dataset": dataset, "held_out": 5000, **data},
        "partition": {"scheme": "dirichlet_client", "alpha": alpha, "clients": CLIENTS},
        "model": {"name": model},
        "train": {"epochs": 10},
        "methods": {"gaussian_distillation": {"wire": {"budget": "none"}}},
        "run": {"device": "cpu", "store": str(store)},
    }
    return check_federations(validate(BenchmarkSettings, settings))


def trained(federations: Federations, federation: Federation) -> Trained:
    """Find or train the clients of a federation."""
    made = train_clients(federations, federation)
    server = server_of(federation, made.inputs)
    inputs = PartitionInputs(made.inputs.data, made.inputs.partition)
    held = [examples_of(federation, inputs, client) for client in range(CLIENTS)]
    total = sum(len(each) for each in held)
    models = tuple(one[Weights].tensors for one in made.statistics)
    factors = tuple(KFAC.of(one[KFAC].tensors).factors for one in made.statistics)
    shares = [len(each) / total for each in held]
    shape = held[0].inputs.shape[1:]
    low, high = (normalise(torch.full((1, *shape), value), federation.dataset)[0] for value in (0.0, 1.0))
    data = load_data(made.inputs.data)
    return Trained(
        clients=tuple(
            Client(server.network(model), share, each, federation, low, high)
            for model, share, each in zip(models, shares, held, strict=True)
        ),
        server=server,
        quadratic=kronecker_quadratic(models, factors, shares),
        models=models,
        factors=factors,
        held_out=select(data.test, data.spec),
    )


def started(federation: Trained, prior: float) -> Parameters:
    """Solve FedFisher(K-FAC), with a prior that counts once.

    The product of the clients' posteriors, less all but one of their priors delta |w - w_0|^2, is the objective plus
    delta |w - w_0 - sum_i (w_i - w_0)|^2. In directions in which all Fishers are zero, the clients' changes are added.
    """
    quadratic, initial = federation.quadratic, federation.server.initial
    if prior:
        centre = {
            name: start + sum(model[name] - start for model in federation.models) for name, start in initial.items()
        }
        mean = quadratic.parameters(quadratic.start)
        quadratic = with_penalty(quadratic, factor=1.0, penalty=prior, centre=centre, start=mean)
    return conjugate_gradients(quadratic, steps=SOLVER_STEPS, damping=DAMPING, check_every=SOLVER_STEPS).parameters


def balanced(student: nn.Module, federation: Trained, drawn: Sequence[pseudo_inputs.Local], seed: int) -> nn.Module:
    """Add biases to the outputs that bring the mean prediction on drawn inputs to the clients' label counts."""
    generator = torch.Generator().manual_seed(seed)
    classes = federation.clients[0].federation.dataset.classes
    labels = torch.cat([client.examples.labels for client in federation.clients])
    wanted = labels.bincount(minlength=classes) / len(labels)
    with torch.no_grad():
        outputs = [student(one.draw(BIAS_SAMPLES, generator)) for one in drawn]
        biases = torch.zeros(classes)
        for _ in range(BIAS_STEPS):
            means = [one.share * (each + biases).softmax(1).mean(0) for one, each in zip(drawn, outputs, strict=True)]
            biases += wanted.clamp(min=1e-6).log() - torch.stack(means).sum(0).clamp(min=1e-6).log()
    return nn.Sequential(student, Biases(biases)).eval()


class Biases(nn.Module):
    """Adds a number to each output."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, outputs: Tensor) -> Tensor:
        """Add them."""
        return outputs + self.values


def accuracy_of(variant: Variant, federation: Trained, begun: Parameters, seed: int) -> float:
    """Distil in one way, and measure the result on images that no client trained on."""
    student: nn.Module = federation.server.network(begun)
    drawn = [
        pseudo_inputs.Local(client.network, variant.imagine(client), client.share) for client in federation.clients
    ]
    generator = torch.Generator().manual_seed(seed)
    distil(student, drawn, steps=STEPS, samples=SAMPLES, learning_rate=LEARNING_RATE, generator=generator)
    if variant.biases:
        student = balanced(student, federation, drawn, seed)
    return accuracy(student, federation.held_out)


def measured(federations: Federations) -> tuple[dict[str, dict[int, float]], dict[str, float]]:
    """Measure all variants, and the starts of their distillations.

    Returns:
        Accuracies by variant and seed; and the numbers that a client sends for each, in the mean.
    """
    found: dict[str, dict[int, float]] = {}
    numbers: dict[str, list[int]] = {}
    for one in federations.all:
        federation, seed = trained(federations, one), one.setting.seed
        starts = {
            prior: started(federation, prior) for prior in dict.fromkeys(variant.prior for variant in VARIANTS.values())
        }
        for prior, begun in starts.items():
            name = "FedFisher(K-FAC)" + (f", prior {prior:.0e} counted once" if prior else "")
            found.setdefault(name, {})[seed] = accuracy(federation.server.network(begun), federation.held_out)
        for name, variant in VARIANTS.items():
            right = accuracy_of(variant, federation, starts[variant.prior], seed)
            found.setdefault(name, {})[seed] = right
            size = federation.clients[0].examples.inputs[0].numel()
            numbers.setdefault(name, []).extend(
                variant.numbers(size, len(client.classes())) for client in federation.clients
            )
            print(f"{one.setting.label}: {name}: {100 * right:.2f} %", file=sys.stderr, flush=True)
    return found, {name: sum(each) / len(each) for name, each in numbers.items()}


def main() -> None:
    """Measure every variant in every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103, 104, 105])
    parser.add_argument("--models", nargs="+", choices=("mlp", "lenet"), default=["mlp", "lenet"])
    parser.add_argument("--store", type=Path, help="keeps the clients (a folder that is removed)")
    options = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs MNIST and Fashion-MNIST")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        for dataset, model in (one for one in SETTINGS if one[1] in options.models):
            found, numbers = measured(federations_of(dataset, model, options.seeds, options.store or Path(temporary)))
            print(f"\n{dataset}, {model}, {len(options.seeds)} seeds")
            print(f"{'':44}{'accuracy, %':16}{'less the method as it is':28}numbers")
            for name, rights in found.items():
                sent = f"{numbers[name]:,.0f}" if name in numbers else ""
                print(f"{name:44}{columns(rights, found['as it is'])}{sent}")


if __name__ == "__main__":
    main()
