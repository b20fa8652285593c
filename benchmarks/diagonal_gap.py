"""What moves FedFisher(Diag) on full MNIST, alpha 0.05: the paper's compression, its selection, or its optimiser.

    FEDFISHER_DATA_DIR=... python -m benchmarks.diagonal_gap

Uses the clients of configs/mnist_heterogeneity.yaml, which are trained first where the store lacks them.
"""

import os
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.evaluation.predictions import accuracy
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import load_settings
from fedfisher_core.solvers.closed_form import closed_form
from fedfisher_core.solvers.paper import paper_diagonal
from fedfisher_core.solvers.quadratic import diagonal_quadratic
from fedfisher_core.steps.clients import TENSORS, compute_statistics, train_client
from fedfisher_core.steps.data import decode_data, load_data
from fedfisher_core.steps.partitions import label_counts, load_partition, split_data
from fedfisher_core.store import read_tensors
from flows.plan import make_plan

_LEVELS = 2**15 - 1


def quantised(parameters: Parameters) -> Parameters:
    """Round every layer to the paper's 16 bits an entry."""

    def rounded(tensor: Tensor) -> Tensor:
        largest = tensor.abs().max()
        return largest * torch.round(_LEVELS * tensor / largest) / _LEVELS

    return {name: rounded(tensor) for name, tensor in parameters.items()}


def main() -> None:
    """Print the mean accuracy over seeds of each variant."""
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs full MNIST")
        return
    plan = make_plan(load_settings(Path("configs/mnist_heterogeneity.yaml")))
    context = plan.context
    data = decode_data(context)
    dataset = load_data(data)
    test = select(dataset.test, dataset.spec)
    found: dict[str, list[float]] = {}
    for cell in (cell for cell in plan.cells if cell.alpha == 0.05):
        partition = split_data(context, cell, data)
        counts = [sum(row) for row in label_counts(partition)]
        weights, fishers = [], []
        for client in range(cell.clients):
            trained = train_client(context, cell, data, partition, client)
            uploads = compute_statistics(context, cell, data, partition, client, trained, plan.kinds(client))
            weights.append(read_tensors(trained, TENSORS))
            fishers.append(read_tensors(uploads["diagonal_fisher"], TENSORS))
        shares = [count / sum(counts) for count in counts]
        exact = diagonal_quadratic(weights, fishers, shares)
        rounded = diagonal_quadratic(list(map(quantised, weights)), list(map(quantised, fishers)), shares)
        held = select(dataset.train, dataset.spec, torch.from_numpy(load_partition(partition).validation))

        def on(examples: Examples) -> Callable[[Mapping[str, Tensor]], float]:
            return lambda parameters: accuracy(context.model.load(parameters).eval(), examples)

        for name, solution in {
            "paper's optimiser, selected on validation": paper_diagonal(exact, score=on(held)),
            "the same, last step": paper_diagonal(exact),
            "the same, 16 bits, selected": paper_diagonal(rounded, score=on(held)),
            "exact minimiser": closed_form(exact),
        }.items():
            found.setdefault(name, []).append(100 * on(test)(solution.parameters))
    for name, values in found.items():
        print(f"{name:45} {statistics.mean(values):.2f} +- {statistics.stdev(values):.2f} % over {len(values)} seeds")


if __name__ == "__main__":
    main()
