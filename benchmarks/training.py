"""Local training against a bare loop that indexes tensors in memory and steps torch's SGD.

python -m benchmarks.training [network ...]
"""

import argparse
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from benchmarks.timing import alternate
from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import TrainSettings

_EPOCHS = 1
_REPEATS = 7


@dataclass(frozen=True)
class Case:
    """One network and what it is measured on.

    Args:
        spec: the network.
        target: largest ratio.
        batches: sizes of batches.
        random: images that are drawn, where they are not the embedded digits; what they show makes no difference.
    """

    spec: ModelSpec
    target: float
    batches: tuple[int, ...]
    random: int | None = None

    def examples(self) -> Examples:
        """The client's images."""
        if self.random is None:
            dataset = read_dataset(find_source("mnist5k"))
            return select(dataset.train, dataset.spec)
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(self.spec.classes, (self.random,), generator=generator)
        return Examples(inputs=self.spec.inputs.drawn(self.random, generator), labels=labels)


CASES = {
    "mlp": Case(ModelSpec("mlp", Images(1, 28, 28), classes=10), 1.15, (16, 64)),
    "lenet": Case(ModelSpec("lenet", Images(1, 28, 28), classes=10), 1.15, (16, 64)),
    "cnn": Case(ModelSpec("cnn", Images(3, 32, 32), classes=10), 1.1, (64,), random=512),
}


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
    """Print the ratio for each network and size of batches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    torch.set_num_threads(1)
    for name in parser.parse_args().networks:
        case = CASES[name]
        examples = case.examples()
        print(f"{name}: {_EPOCHS} epoch over {len(examples)} images, one thread, median of {_REPEATS}")
        for batch_size in case.batches:
            settings = TrainSettings(epochs=_EPOCHS, batch_size=batch_size)
            seconds, reference = alternate(
                partial(ours, case.spec, examples, settings),
                partial(bare, case.spec, examples, settings),
                repeats=_REPEATS,
            )
            print(
                f"  batches of {batch_size}: ours {seconds:.3f} s, bare loop {reference:.3f} s, "
                f"ratio {seconds / reference:.2f} (<= {case.target})",
                flush=True,
            )


if __name__ == "__main__":
    main()
