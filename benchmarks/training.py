"""Local training against a bare loop that indexes tensors in memory and steps torch's SGD.

python -m benchmarks.training
"""

import itertools
from functools import partial

import torch
from torch.nn import functional

from benchmarks.timing import alternate
from fedfisher_core.client.training import train
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.layouts import Images
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import TrainSettings

_EPOCHS = 1
_TARGET = 1.15
_REPEATS = 7
_BATCHES = (16, 64)


def bare(spec: ModelSpec, examples: Examples, settings: TrainSettings) -> None:
    """Train with nothing but what training needs."""
    generator = torch.Generator().manual_seed(0)
    network = spec.load(spec.initialise(generator))
    optimiser = torch.optim.SGD(network.parameters(), lr=settings.learning_rate, momentum=settings.momentum)
    for _ in range(_EPOCHS):
        order = torch.randperm(len(examples), generator=generator)
        for batch in order.split(settings.batch_size):
            optimiser.zero_grad()
            functional.cross_entropy(network(examples.inputs[batch]), examples.labels[batch]).backward()
            optimiser.step()


def ours(spec: ModelSpec, examples: Examples, settings: TrainSettings) -> None:
    """Train as a client does."""
    generator = torch.Generator().manual_seed(0)
    train(spec.load(spec.initialise(generator)), examples, settings, generator=generator)


def main() -> None:
    """Print the ratio for each small network and size of batches."""
    torch.set_num_threads(1)
    source = find_source("mnist5k")
    dataset = read_dataset(source)
    examples = select(dataset.train, dataset.spec)
    print(f"{_EPOCHS} epoch over {len(examples)} digits, one thread, median of {_REPEATS}")
    for name, batch_size in itertools.product(("mlp", "lenet"), _BATCHES):
        settings = TrainSettings(epochs=_EPOCHS, batch_size=batch_size)
        spec = ModelSpec(name=name, inputs=Images(1, 28, 28), classes=10)
        seconds, reference = alternate(
            partial(ours, spec, examples, settings),
            partial(bare, spec, examples, settings),
            repeats=_REPEATS,
        )
        ratio = seconds / reference
        print(
            f"{name:6} batches of {batch_size}: ours {seconds:.3f} s, bare loop {reference:.3f} s, "
            f"ratio {ratio:.2f} (<= {_TARGET})"
        )


if __name__ == "__main__":
    main()
