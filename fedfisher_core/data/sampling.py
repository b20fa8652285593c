"""The training examples that a benchmark uses, and those that replace its test examples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, numpy_generator


@dataclass(frozen=True)
class Sample:
    """A part of the training examples, which is the same for every seed.

    Args:
        examples: number of examples used, stratified by label; None for all that are not held out.
        held_out: number of examples that replace the test examples; None to score on the test examples.
    """

    examples: int | None = None
    held_out: int | None = None

    def described(self) -> dict[str, int]:
        """The settings that differ from the whole data set, as JSON."""
        return {name: size for name, size in vars(self).items() if size is not None}

    def draw(self, labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw indices of the used and of the held-out examples, in rising order.

        A smaller sample is a part of a larger one.

        Raises:
            InputError: there are too few examples.
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


ALL = Sample()
"""All examples."""


def _stratified(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order examples so that the first n, for any n, have the labels by Webster's apportionment."""
    by_label = np.argsort(labels, kind="stable")
    counts = np.unique(labels, return_counts=True)[1]
    # The examples of a label keep their order, and are spread evenly over the new order.
    places = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    return by_label[np.argsort(places, kind="stable")]
