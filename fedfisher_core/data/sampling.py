"""Which training examples of a data set a benchmark uses, and which take the place of its test examples."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.errors import InputError
from fedfisher_core.seeds import Stream, numpy_generator


@dataclass(frozen=True)
class Sample:
    """A part of the training examples, which is the same for every seed.

    Args:
        train_size: how many are used; None for all that are not held out.
        held_out: how many take the place of the test examples; None to score on these.
    """

    train_size: int | None = None
    held_out: int | None = None

    def described(self) -> dict[str, int]:
        """What is not as in the whole data set, as JSON has it."""
        return {name: size for name, size in vars(self).items() if size is not None}

    def draw(self, examples: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw the examples.

        Args:
            examples: number of training examples that there are.

        Returns:
            Indices of those that are used and of those that are held out, in rising order.

        Raises:
            InputError: there are too few.
        """
        if self == ALL:
            return np.arange(examples), np.arange(0)
        apart, used = self.held_out or 0, self.train_size
        needed = apart + (1 if used is None else used)
        if needed > examples:
            given = " with ".join(f"data.{name}={size}" for name, size in self.described().items())
            raise InputError(f"{given} needs {needed} training examples; there are {examples}")
        order = numpy_generator(0, Stream.SAMPLE).permutation(examples)
        kept = order[apart:] if used is None else order[apart : apart + used]
        return np.sort(kept), np.sort(order[:apart])

    def of(self, dataset: Dataset) -> Dataset:
        """Take the examples of a data set.

        Args:
            dataset: the whole data set.

        Returns:
            What is used of it, with the held-out examples as its test examples.

        Raises:
            InputError: it has too few.
        """
        if self == ALL:
            return dataset
        used, apart = self.draw(len(dataset.train))
        test = _part(dataset.train, apart) if self.held_out else dataset.test
        return replace(dataset, train=_part(dataset.train, used), test=test)


ALL = Sample()
"""Everything, as it is."""


def _part(split: Split, indices: NDArray[np.int64]) -> Split:
    chosen = torch.from_numpy(indices)
    groups = None if split.groups is None else split.groups[chosen]
    return Split(inputs=split.inputs[chosen], labels=split.labels[chosen], groups=groups)
