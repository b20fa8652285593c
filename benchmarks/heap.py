"""Training and Fishers of networks for colour images, where what is freed is kept and where glibc gives it back.

python -m benchmarks.heap [--repeats 3]

Each side is a process of its own with one thread, as a task's is; both take turns.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.queues import SimpleQueue

import torch

from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.malloc import keep_freed_memory
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.models.memory import working_memory
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import TrainSettings

Work = Callable[[ModelSpec, Examples], object]


@dataclass(frozen=True)
class Spent:
    """What a piece of work took.

    Args:
        seconds: by the clock.
        peak: bytes that it held at most.
    """

    seconds: float
    peak: int


def trained(spec: ModelSpec, examples: Examples, *, batch_size: int) -> None:
    """Train a client for an epoch."""
    generator = torch.Generator().manual_seed(0)
    settings = TrainSettings(epochs=1, batch_size=batch_size)
    train(spec.load(spec.initialise(generator)), examples, settings, generator=generator)


def fisher(spec: ModelSpec, examples: Examples) -> None:
    """Compute a client's exact Fishers, diagonal and K-FAC."""
    network = spec.load(spec.initialise(torch.Generator().manual_seed(0)))
    compute_fisher(network, examples.inputs)


CASES: tuple[tuple[str, int, str, Work], ...] = (
    ("lenet", 4096, "training, batches of 64", partial(trained, batch_size=64)),
    ("cnn", 512, "training, batches of 64", partial(trained, batch_size=64)),
    ("cnn", 512, "exact Fishers", fisher),
    ("resnet18", 128, "training, batches of 64", partial(trained, batch_size=64)),
)


def spent(work: Work, name: str, count: int, *, kept: bool) -> Spent:
    """Do a piece of work twice in a process of its own, and measure the second time.

    Args:
        work: takes a network and images.
        name: of the network.
        count: how many random images.
        kept: whether what is freed is kept.

    Returns:
        What it took.
    """
    context = multiprocessing.get_context("spawn")
    answer: SimpleQueue[Spent] = context.SimpleQueue()
    process = context.Process(target=_measure, args=(work, name, count, kept, answer))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"the process ended with {process.exitcode}")
    return answer.get()


def _measure(work: Work, name: str, count: int, kept: bool, answer: "SimpleQueue[Spent]") -> None:
    torch.set_num_threads(1)
    if kept:
        keep_freed_memory()
    spec, generator = ModelSpec(name, Images(3, 32, 32), classes=10), torch.Generator().manual_seed(0)
    labels = torch.randint(10, (count,), generator=generator)
    examples = Examples(inputs=spec.inputs.drawn(count, generator), labels=labels)
    work(spec, examples)
    with working_memory(torch.device("cpu")) as peak:
        begun = time.perf_counter()
        work(spec, examples)
        seconds = time.perf_counter() - begun
    answer.put(Spent(seconds, peak.bytes))


def main() -> None:
    """Print seconds and memory of both sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="of both sides (3)")
    repeats = parser.parse_args().repeats
    print(f"random images of 3 x 32 x 32, one thread, median of {repeats}; MiB are the most that the work holds")
    for name, count, title, work in CASES:
        pairs = [(spent(work, name, count, kept=True), spent(work, name, count, kept=False)) for _ in range(repeats)]
        ours, others = zip(*pairs, strict=True)
        ratios = [other.seconds / own.seconds for own, other in pairs]
        print(
            f"  {name}, {count} images, {title}: kept {statistics.median(one.seconds for one in ours):.3f} s, "
            f"{statistics.median(one.peak for one in ours) / 2**20:.0f} MiB; given back "
            f"{statistics.median(one.seconds for one in others):.3f} s, "
            f"{statistics.median(one.peak for one in others) / 2**20:.0f} MiB; "
            f"{statistics.median(ratios):.2f} times faster, from {min(ratios):.2f} to {max(ratios):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
