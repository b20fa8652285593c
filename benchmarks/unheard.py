"""What could make clients heard whose Fisher is near zero: a floor under traces, and curvature without labels.

    FEDFISHER_DATA_DIR=... python -m benchmarks.unheard [--seeds 101 102 103 104 105] [--variants floor]

Five clients train for ten epochs, and nothing is compressed. FedFisher(K-FAC) has its default solver. Accuracies are of
5,000 training images that no client trained on, with seeds that no report has. A difference is to the method as it is,
over the same seeds, with the 95 % interval of the pair alone. `least` is the smallest of the clients' shares times
traces, divided by their mean.

With a floor of f, a client's Fisher is multiplied so that its trace is at least f times the clients' weighted mean. The
curvature without labels is the mean of J^T (I - 11^T / C) J / C over examples. It is the Fisher of a network whose C
probabilities are equal, and does not vanish where a client is sure. A mixture of part m is (1 - m) times the Fisher
plus m times this curvature.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.differences import columns
from benchmarks.pseudo_inputs import DAMPING, SOLVER_STEPS, Parameters, federations_of, trained
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.shared.fedfisher import raised, trace_of
from fedfisher_core.methods.solvers.exact import conjugate_gradients
from fedfisher_core.methods.solvers.quadratic import kronecker_quadratic
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.reporting.measure import mean_by_seed

SETTINGS = (
    ("mnist", "mlp", 0.1),
    ("mnist", "mlp", 0.05),
    ("fashion_mnist", "mlp", 0.05),
    ("fashion_mnist", "lenet", 0.1),
)
AS_IT_IS = "as it is"

Factors = Mapping[str, Kronecker]


@dataclass(frozen=True)
class Heard:
    """What the objective sums for one client.

    Args:
        weights: of its network.
        factors: of its curvature.
        share: by which it counts.
    """

    weights: Parameters
    factors: Factors
    share: float


def without_labels(network: nn.Module, inputs: Tensor) -> Factors:
    """K-FAC of J^T (I - 11^T / C) J / C, where C is the number of outputs."""
    # The outputs are zero, so that all probabilities are equal, and have the gradients that they had.
    hook = network.register_forward_hook(lambda module, given, outputs: outputs - outputs.detach())
    try:
        fisher = compute_fisher(network, inputs, approximations={Approximation.KFAC})
    finally:
        hook.remove()
    assert fisher.kfac is not None
    return fisher.kfac


def floored(clients: Sequence[Heard], least: float) -> list[Heard]:
    """Raise traces that are below a part of their weighted mean."""
    factors = raised([one.factors for one in clients], [one.share for one in clients], least)
    return [replace(one, factors=own) for one, own in zip(clients, factors, strict=True)]


def mixed(true: Sequence[Heard], plain: Sequence[Heard], part: float) -> list[Heard]:
    """Sum both curvatures: each client counts twice, with one of them each time."""
    return [Heard(one.weights, one.factors, (1 - part) * one.share) for one in true] + [
        Heard(one.weights, one.factors, part * one.share) for one in plain
    ]


def variants(true: Sequence[Heard], plain: Sequence[Heard]) -> Mapping[str, Sequence[Heard]]:
    """Name what is compared."""
    return {
        AS_IT_IS: true,
        **{f"floor {least:g}": floored(true, least) for least in (0.03, 0.1, 0.3, 1.0, 3.0)},
        **{f"mixture {part:g}": mixed(true, plain, part) for part in (0.01, 0.1, 0.5)},
        "without labels": plain,
    }


def least_of(clients: Sequence[Heard]) -> float:
    """How little the client counts that counts least, in units of the mean."""
    sums: dict[int, float] = {}
    for one in clients:
        sums[id(one.weights)] = sums.get(id(one.weights), 0.0) + one.share * trace_of(one.factors)
    return min(sums.values()) * len(sums) / sum(sums.values())


def measure(
    dataset: str, model: str, alpha: float, seeds: Sequence[int], store: Path, chosen: str
) -> dict[str, dict[int, float]]:
    """Print the table of one setting.

    Returns:
        Accuracies by variant and seed.
    """
    rights: dict[str, dict[int, float]] = {}
    least: dict[str, list[float]] = {}
    federations = federations_of(dataset, model, seeds, store, alpha=alpha)
    for one in federations.all:
        federation = trained(federations, one)
        shares = [client.share for client in federation.clients]
        true = [Heard(*each) for each in zip(federation.models, federation.factors, shares, strict=True)]
        plain = [
            Heard(heard.weights, without_labels(client.network, client.examples.inputs), heard.share)
            for heard, client in zip(true, federation.clients, strict=True)
        ]
        for name, clients in variants(true, plain).items():
            if name != AS_IT_IS and not name.startswith(chosen):
                continue
            quadratic = kronecker_quadratic(
                [each.weights for each in clients],
                [each.factors for each in clients],
                [each.share for each in clients],
            )
            solution = conjugate_gradients(
                quadratic, steps=SOLVER_STEPS, damping=DAMPING, check_every=SOLVER_STEPS
            ).parameters
            right = accuracy(federation.server.network(solution), federation.held_out)
            rights.setdefault(name, {})[one.setting.seed] = right
            least.setdefault(name, []).append(least_of(clients))
    print(f"\n{dataset}, {model}, alpha {alpha:g}, {len(seeds)} seeds")
    print(f"{'':20}{'accuracy, %':16}{'less the method as it is':28}least, mean and smallest")
    for name, found in rights.items():
        each = least[name]
        print(
            f"{name:20}{columns(found, rights[AS_IT_IS])}{sum(each) / len(each):.2g}, {min(each):.2g}",
            flush=True,
        )
    return rights


def main() -> None:
    """Measure every variant in every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103, 104, 105])
    parser.add_argument("--variants", default="", help="those whose names begin so (all)")
    parser.add_argument("--store", type=Path, help="keeps the clients (a folder that is removed)")
    options = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs MNIST and Fashion-MNIST")
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        store = options.store or Path(temporary)
        found = [measure(*setting, options.seeds, store, options.variants) for setting in SETTINGS]
    print(f"\nmean over {len(SETTINGS)} settings\n{'':20}{'accuracy, %':16}less the method as it is")
    means = {name: mean_by_seed([rights[name] for rights in found]) for name in found[0]}
    for name, mean in means.items():
        print(f"{name:20}{columns(mean, means[AS_IT_IS])}")


if __name__ == "__main__":
    main()
