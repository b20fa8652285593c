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
        examples: how many are used, each label's share of them being its share of all; None for all that are not held
            out.
        held_out: how many take the place of the test examples; None to score on these.
    """

    examples: int | None = None
    held_out: int | None = None

    def described(self) -> dict[str, int]:
        """What is not as in the whole data set, as JSON has it."""
        return {name: size for name, size in vars(self).items() if size is not None}

    def draw(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw the examples; what fewer are used of is a part of what more are used of.

        Args:
            labels: of the training examples that there are.

        Returns:
            Indices of those that are used and of those that are held out, in rising order.

        Raises:
            InputError: there are too few.
        """
        there = len(labels)
        if self == ALL:
            return np.arange(there), np.arange(0)
        apart, used = self.held_out or 0, self.examples
        needed = apart + (1 if used is None else used)
        if needed > there:
            given = " with ".join(f"data.{name}={size}" for name, size in self.described().items())
            raise InputError(f"{given} needs {needed} training examples; there are {there}")
        order = numpy_generator(0, Stream.SAMPLE).permutation(there)
        kept = order[apart:]
        if used is not None:
            kept = kept[_stratified(labels[kept])[:used]]
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
        used, apart = self.draw(dataset.train.labels.numpy())
        test = _part(dataset.train, apart) if self.held_out else dataset.test
        return replace(dataset, train=_part(dataset.train, used), test=test)


ALL = Sample()
"""Everything, as it is."""


def _stratified(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order examples so that the first of them, however many, have the labels by Webster's apportionment."""
    by_label = np.argsort(labels, kind="stable")
    counts = np.unique(labels, return_counts=True)[1]
    # The examples of a label, in the order in which they come, are spread evenly over the new order.
    places = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    return by_label[np.argsort(places, kind="stable")]


def _part(split: Split, indices: NDArray[np.int64]) -> Split:
    chosen = torch.from_numpy(indices)
    groups = None if split.groups is None else split.groups[chosen]
    return Split(inputs=split.inputs[chosen], labels=split.labels[chosen], groups=groups)
