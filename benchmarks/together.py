"""Many small clients: one at a time on every core, against groups whose weights are stacked and trained in one call.

python -m benchmarks.together [--clients 100] [--repeats 3] [--device cpu] [--batch-sizes 8 16 64]

In a run `train.together` says how many train in one call a step; left alone, it chooses by what was measured here. Both
sides divide the clients among as many threads as there are cores, and then among as many processes, with one thread of
torch each: threads of Python wait for each other, the more the shorter the steps are. The weights that the first five
clients end at are compared as well.
"""

import argparse
import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.timing import alternate
from fedfisher_core.client.training import Member, Trained, train, train_together
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.arithmetic import reproducible_gpu
from fedfisher_core.engine.costs import usable_processors
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.settings import TrainSettings

EXAMPLES, EPOCHS = 64, 5
SIZES = 5, 10, 25, 50
TARGET = 1.4


@dataclass(frozen=True)
class Clients:
    """What both sides train.

    Args:
        spec: the network.
        start: its initial weights, the same for all.
        examples: each client's.
        settings: of local training.
    """

    spec: ModelSpec
    start: Parameters
    examples: tuple[Examples, ...]
    settings: TrainSettings

    @classmethod
    def draw(cls, model: str, *, clients: int, batch_size: int, device: torch.device) -> "Clients":
        """Draw images and labels; what they show makes no difference to the seconds."""
        spec = ModelSpec(model, Images(1, 28, 28), classes=10)
        generator = torch.Generator().manual_seed(0)
        examples = tuple(
            Examples(
                inputs=spec.inputs.drawn(EXAMPLES, generator),
                labels=torch.randint(spec.classes, (EXAMPLES,), generator=generator),
            ).to(device)
            for _ in range(clients)
        )
        settings = TrainSettings(epochs=EPOCHS, batch_size=batch_size)
        start = {name: tensor.to(device) for name, tensor in spec.initialise(generator).items()}
        return cls(spec, start, examples, settings)

    # As tasks do it on a GPU; on a processor nothing rounds otherwise.
    @reproducible_gpu()
    def one_at_a_time(self, indices: Sequence[int]) -> list[Parameters]:
        """Train clients as a run does."""
        trained = []
        for index in indices:
            generator = torch.Generator().manual_seed(index)
            network = self.spec.load(self.start)
            trained.append(train(network, self.examples[index], self.settings, generator=generator).parameters)
        return trained

    @reproducible_gpu()
    def stacked(self, indices: Sequence[int]) -> list[Parameters]:
        """Train clients in one call a step, as a run with `train.together` does."""
        members = [Member(self.start, self.examples[index], torch.Generator().manual_seed(index)) for index in indices]
        trained = train_together(self.spec, members, self.settings)
        return [one.parameters for one in trained if isinstance(one, Trained)]


def farthest(first: Sequence[Parameters], second: Sequence[Parameters]) -> float:
    """Largest distance of a weight on one side from the same on the other."""
    return max(
        (tensor - other[name]).abs().max().item()
        for one, other in zip(first, second, strict=True)
        for name, tensor in one.items()
    )


class _Held:
    """The clients of a process."""

    clients: Clients


def _hold(model: str, clients: int, batch_size: int, device: torch.device) -> None:
    """Draw the clients that a worker trains, once; it gets their numbers alone."""
    torch.set_num_threads(1)
    _Held.clients = Clients.draw(model, clients=clients, batch_size=batch_size, device=device)


def _train_single(indices: Sequence[int]) -> None:
    _Held.clients.one_at_a_time(indices)


def _train_stacked(indices: Sequence[int]) -> None:
    _Held.clients.stacked(indices)


def spread(pool: Executor, work: Callable[[Sequence[int]], None], clients: int, size: int) -> Callable[[], object]:
    """Divide clients among workers.

    Args:
        pool: of workers that hold them.
        work: trains some.
        clients: how many there are.
        size: of a group.

    Returns:
        What trains all.
    """
    groups = [range(first, min(first + size, clients)) for first in range(0, clients, size)]
    return lambda: list(pool.map(work, groups))


def main() -> None:
    """Print the ratio for each network, size of batches, kind of worker and size of groups."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100, help="in all (100)")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls of each side (3)")
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 16, 64], help="of clients (8 16 64)")
    given = parser.parse_args()
    # Workers that share a GPU wait for each other.
    cores = usable_processors() if given.device.type == "cpu" else 1
    print(
        f"{given.clients} clients of {EXAMPLES} images, {EPOCHS} epochs, {given.device}, {cores} workers, "
        f"median of {given.repeats}"
    )
    kinds: dict[str, Callable[..., Executor]] = {
        "threads": ThreadPoolExecutor,
        "processes": partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("spawn")),
    }
    for model, batch_size in itertools.product(("lenet", "mlp"), given.batch_sizes):
        settings = (model, given.clients, batch_size, given.device)
        _hold(*settings)
        apart = farthest(_Held.clients.one_at_a_time(range(5)), _Held.clients.stacked(range(5)))
        print(f"{model}, batches of {batch_size}, weights within {apart:.1e}", flush=True)
        for kind, executor in kinds.items():
            with executor(cores, initializer=_hold, initargs=settings) as pool:
                for size in SIZES:
                    single, stacked = alternate(
                        spread(pool, _train_single, given.clients, 1),
                        spread(pool, _train_stacked, given.clients, size),
                        repeats=given.repeats,
                    )
                    print(
                        f"  {kind:9}, groups of {size:2}: one at a time {single:.2f} s, stacked {stacked:.2f} s, ratio "
                        f"{single / stacked:.2f} (>= {TARGET})",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
