"""Whether drawn inputs or the optimisation keep distillation below FedFisher(K-FAC) with the paper's CNN on CIFAR-10.

    FEDFISHER_DATA_DIR=... python -m benchmarks.cnn_inputs [--seeds 0 1 2]

The federations are those of `configs/cifar10_cnn_classes.yaml`, and accuracies are of its test images: clients' own
images are a bound that no server has, and nothing is chosen by it. With `--held-out` accuracies are of 5,000 training
images that no client trained on, so that other seeds can choose. Nothing is compressed. `from real` is the divergence
of the network from the clients' networks on the clients' own images, in nats, weighted by the clients' shares.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.class_moments import of_classes
from benchmarks.imagined import Client, Imagine, as_it_is
from benchmarks.pseudo_inputs import SAMPLES, STEPS, Parameters, Trained, started, trained
from fedfisher_core.client.statistics.class_moments import DIRECTIONS, FREQUENCIES
from fedfisher_core.data.tensors import augment
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.methods.distillation.pseudo_inputs import Draw, Local, distil
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.reporting.measure import paired_difference
from fedfisher_core.settings.reading import read_yaml, validate

CONFIG = Path(__file__).parents[1] / "configs/cifar10_cnn_classes.yaml"
REAL_IMAGES = 2000
"""Of each client, on which divergences are measured."""


def own_images(client: Client) -> Draw:
    """Draw from the client's own images, which no server has."""

    def draw(count: int, generator: torch.Generator) -> Tensor:
        return client.examples.inputs[torch.randint(len(client.examples), (count,), generator=generator)]

    return draw


def augmented(client: Client) -> Draw:
    """Draw from the client's own images, cropped and mirrored as the client trained on them."""
    images = own_images(client)
    return lambda count, generator: augment(images(count, generator), generator)


@dataclass(frozen=True)
class Trial:
    """A form of distillation.

    Args:
        imagine: makes what draws inputs like a client's.
        learning_rate: of the first step.
        steps: of the optimiser.
    """

    imagine: Imagine
    learning_rate: float = 1e-3
    steps: int = STEPS


MIXTURE = of_classes(DIRECTIONS, FREQUENCIES)
TRIALS = {
    "one normal distribution": Trial(as_it_is),
    "one a class": Trial(MIXTURE),
    "one a class, rate 1e-4": Trial(MIXTURE, learning_rate=1e-4),
    "own images": Trial(own_images),
    "own images, rate 1e-4": Trial(own_images, learning_rate=1e-4),
    "own images, augmented": Trial(augmented),
    "own images, augmented, 4 times the steps": Trial(augmented, steps=4 * STEPS),
}


def federations_of(seeds: Sequence[int], store: Path, *, held_out: bool) -> Federations:
    """Plan the report's federations, or those of other seeds with images that no client trains on."""
    settings = read_yaml(CONFIG.read_text())
    settings |= {
        "seeds": list(seeds),
        "methods": {"gaussian_distillation": {"wire": {"budget": "none"}}},
        "run": {"device": "cpu", "store": str(store)},
    }
    if held_out:
        settings["data"] |= {"held_out": 5000}
    return check_federations(validate(BenchmarkSettings, settings))


@torch.no_grad()
def divergence(federation: Trained, weights: Parameters) -> float:
    """Compute sum_i p_i E KL(f_i(x_i) || f(x_i)) over own images x_i of client i."""
    student, total = federation.server.network(weights), 0.0
    for client in federation.clients:
        for inputs in client.examples.inputs[:REAL_IMAGES].split(500):
            taught, said = (network(inputs).log_softmax(1) for network in (client.network, student))
            count = min(REAL_IMAGES, len(client.examples))
            total += client.share / count * functional.kl_div(said, taught, reduction="sum", log_target=True).item()
    return total


def distilled(trial: Trial, federation: Trained, begun: Parameters, seed: int) -> Parameters:
    """Distil from the solution of FedFisher(K-FAC)."""
    student = federation.server.network(begun)
    drawn = [Local(client.network, trial.imagine(client), client.share) for client in federation.clients]
    generator = torch.Generator().manual_seed(seed)
    distil(
        student,
        drawn,
        steps=trial.steps,
        samples=SAMPLES,
        learning_rate=trial.learning_rate,
        generator=generator,
    )
    return {name: tensor.detach() for name, tensor in student.state_dict().items()}


def measure(federations: Federations) -> Mapping[str, Mapping[int, float]]:
    """Print every trial with every seed.

    Returns:
        Accuracies by trial and seed.
    """
    found: dict[str, dict[int, float]] = {}
    for one in federations.all:
        federation, seed = trained(federations, one), one.setting.seed
        begun = started(federation, prior=0.0)
        print(f"\nseed {seed}\n{'':44}{'accuracy, %':>12}{'less K-FAC':>12}{'from real':>12}")
        first = 0.0
        for name, trial in {"FedFisher(K-FAC)": None, **TRIALS}.items():
            weights = begun if trial is None else distilled(trial, federation, begun, seed)
            right = accuracy(federation.server.network(weights), federation.held_out)
            first = right if trial is None else first
            found.setdefault(name, {})[seed] = right
            apart = divergence(federation, weights)
            print(f"{name:44}{100 * right:12.2f}{100 * (right - first):12.2f}{apart:12.3f}", flush=True)
    return found


def main() -> None:
    """Measure all trials, and their differences from FedFisher(K-FAC) over seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--held-out", action="store_true", help="measures on images that no client trained on")
    parser.add_argument("--store", type=Path, help="keeps the clients (a folder that is removed)")
    options = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs CIFAR-10")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(federations_of(options.seeds, options.store or Path(temporary), held_out=options.held_out))
    print(f"\n{len(options.seeds)} seeds, less FedFisher(K-FAC), with the 95 % interval of the pair alone")
    for name, rights in found.items():
        difference = paired_difference(rights, found["FedFisher(K-FAC)"])
        if difference is not None and difference.interval is not None and name != "FedFisher(K-FAC)":
            low, high = (100 * end for end in difference.interval)
            print(f"{name:44}{100 * difference.mean:8.2f}{f'{low:.1f} to {high:.1f}':>18}")


if __name__ == "__main__":
    main()
