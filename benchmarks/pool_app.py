"""One-shot FedAvg on a plain pool of processes: no artifact, no bits, no record, nothing to go on from.

BARE_OPTIONS=... python -c "from benchmarks.pool_app import run; run()"
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import torch

from benchmarks.bare import accuracy, examples, lenet, tell, train

WORKERS = 2
_CHUNK = 10


def run() -> None:
    """Train every client once, and print what the mean of their weights reaches."""
    torch.manual_seed(0)
    start = lenet().state_dict()
    sums = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    clients, seen = len(examples()["ends"]), 0
    # Forked after torch has started threads, workers may hang.
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for weights, size in pool.map(partial(train, start), range(clients), chunksize=_CHUNK):
            seen += size
            for name, tensor in weights.items():
                sums[name] += size * tensor
    tell(accuracy({name: tensor / seen for name, tensor in sums.items()}))
