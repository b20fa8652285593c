"""Memory and speed of K-FAC of a transformer; run as `python -m benchmarks.fisher_sequences`.

The network is the registered `transformer` on 40 tokens of 65. One pass of `compute_fisher` is compared with a forward
and a backward pass on the same examples, by the memory of each in a process of its own, and with curvlinops
(`pip install curvlinops-for-pytorch`) by processor time, since a busy machine's clock says little. Its expand and
reduce forms are the same, and the estimator is exact (type-2). Embeddings and normalisations are in our figures alone:
curvlinops has factors of linear layers only. The last lines say which targets are met.
"""

import argparse
import multiprocessing
import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.fisher import Target, time_in_turn
from fedfisher_core.data.layouts import Tokens
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.weight_sharing import WeightSharing
from fedfisher_core.models.memory import working_memory
from fedfisher_core.models.spec import ModelSpec

EXAMPLES = 512
CLASSES = 4
SPEC = ModelSpec("transformer", Tokens(40, 65), classes=CLASSES, bias=True)
SPEEDUP = 3.0
MEMORY = 1.5
KFAC = frozenset({Approximation.KFAC})


def network_and_data() -> tuple[nn.Module, Tensor, Tensor]:
    """The network with its initial weights, and random tokens and labels."""
    generator = torch.Generator().manual_seed(0)
    network = SPEC.load(SPEC.initialise(generator)).eval()
    return network, SPEC.inputs.drawn(EXAMPLES, generator), torch.randint(CLASSES, (EXAMPLES,), generator=generator)


def backward(network: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Run forward and backward over all examples at once, as a step of training with one large batch does."""
    functional.cross_entropy(network(inputs), labels).backward()
    network.zero_grad(set_to_none=True)


def ours(network: nn.Module, inputs: Tensor, sharing: WeightSharing) -> None:
    """Compute all factors by this project."""
    compute_fisher(network, inputs, approximations=KFAC, weight_sharing=sharing)


def theirs(network: nn.Module, inputs: Tensor, labels: Tensor, sharing: WeightSharing) -> None:
    """Compute the factors of all linear layers by curvlinops."""
    from curvlinops import KFACLinearOperator

    linear = [one for one in network.modules() if isinstance(one, nn.Linear)]
    operator = KFACLinearOperator(
        network,
        nn.CrossEntropyLoss(),
        [parameter for one in linear for parameter in one.parameters()],
        [(inputs, labels)],
        fisher_type="type-2",
        kfac_approx=sharing.value,
        separate_weight_and_bias=False,
        check_deterministic=False,
        num_per_example_loss_terms=1,
    )
    operator.compute_kronecker_factors()


def peak_memory(what: str, threads: int) -> int:
    """Bytes that a computation takes at its peak beyond what a fresh process with network and data holds."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_memory_here, (what, threads))


def _peak_memory_here(what: str, threads: int) -> int:
    torch.set_num_threads(threads)
    network, inputs, labels = network_and_data()
    # The first call loads libraries.
    backward(network, inputs[:8], labels[:8])
    if what != "backward":
        ours(network, inputs[:8], WeightSharing(what))
    with working_memory(inputs.device) as peak:
        if what == "backward":
            backward(network, inputs, labels)
        else:
            ours(network, inputs, WeightSharing(what))
    return peak.bytes


def main() -> None:
    """Measure both forms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    network, inputs, labels = network_and_data()
    functions: dict[str, Callable[[], object]] = {"backward pass": partial(backward, network, inputs, labels)}
    for sharing in WeightSharing:
        functions[f"{sharing}, this project"] = partial(ours, network, inputs, sharing)
        functions[f"{sharing}, curvlinops"] = partial(theirs, network, inputs, labels, sharing)
    times = time_in_turn(functions, arguments.repeats)
    print(f"transformer on {SPEC.inputs}, {CLASSES} classes, {EXAMPLES} examples, {arguments.repeats} turns, ", end="")
    print(f"{arguments.threads} threads; medians of processor time")
    medians = {name: statistics.median(call.processor for call in calls) for name, calls in times.items()}
    for name, seconds in medians.items():
        print(f"  {name:25} {seconds * 1000:8.1f} ms")
    base = peak_memory("backward", arguments.threads)
    print(f"  memory of the backward pass {base / 2**20:.0f} MiB")
    targets = []
    for sharing in WeightSharing:
        ratio = medians[f"{sharing}, curvlinops"] / medians[f"{sharing}, this project"]
        shown = f"{ratio:.2f} times (at least {SPEEDUP:g})"
        targets.append(Target(f"{sharing}: faster than curvlinops", shown, ratio >= SPEEDUP))
        share = peak_memory(sharing, arguments.threads) / base
        shown = f"{share:.2f} times (at most {MEMORY:g})"
        targets.append(Target(f"{sharing}: memory of the backward pass", shown, share <= MEMORY))
    for target in targets:
        print(f"{'met   ' if target.met else 'MISSED'}  {target.what:40} {target.shown}")


if __name__ == "__main__":
    main()
