"""Sums over a client's inputs of each class, from which a server can draw inputs like those of all clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.codec import TensorSpec
from fedfisher_core.communication.wire.elementwise import Uniform
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import Signed
from fedfisher_core.data.layouts import Tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec

NUMBERS = 100
"""Ten frequencies along each side of a grey image, five of a coloured one."""
MOST = 1000
_BATCH_SIZE = 1000
_FEWEST_BITS = 10
"""Of a number: covariances are differences of sums, which fewer bits leave too little of."""


class Sums(Signed):
    """Sums of which covariances are made."""

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Uniform | None:
        """As many bits an entry as the scales leave; None for fewer than ten."""
        return _precise(super().shorten(tensors, bits))

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Uniform | None:
        """As many bits an entry as fit, 16 at most; None for fewer than ten."""
        return _precise(super().shorten_as_paper(tensors, bits, factor_bits=factor_bits))


def _precise(codec: Uniform | None) -> Uniform | None:
    return None if codec is None or codec.levels_log2 + 1 < _FEWEST_BITS else codec


@dataclass(frozen=True)
class InputSums(TensorStatistic):
    """Sums of the low frequencies z of a client's inputs, and of their products, class by class.

    All are divided by the client's number of examples, so that their mean over clients is that over all examples:

    * `sums`, shape (classes, numbers): of z, over the examples of each class.
    * `products`, shape (classes, numbers (numbers + 1) / 2): of z z^T, on and above the diagonal, row by row.
    * `squares`, shape (inputs,): of the squares of what low frequencies leave of an input, over all examples.

    A class of one example is sent too: its sum is the example's low frequencies.
    """

    name: ClassVar[str] = "input_sums"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = Sums()

    @classmethod
    def compute(
        cls,
        local: Local,
        *,
        numbers: Annotated[
            int, Field(ge=1, le=MOST, description="most low frequencies of an image; other inputs are kept whole")
        ] = NUMBERS,
    ) -> Self:
        """Add up class by class, in double precision."""
        inputs, labels = local.examples.inputs.flatten(1), local.examples.labels
        low = LowFrequencies.of_size(local.examples.inputs.shape[1:], numbers)
        above = torch.triu_indices(low.size, low.size, device=inputs.device)
        sums = torch.zeros(local.classes, low.size, dtype=torch.float64, device=inputs.device)
        products = torch.zeros(local.classes, above.shape[1], dtype=torch.float64, device=inputs.device)
        squares = torch.zeros(inputs.shape[1], dtype=torch.float64, device=inputs.device)
        for rows, classes in zip(inputs.split(_BATCH_SIZE), labels.split(_BATCH_SIZE), strict=True):
            kept = low.keep(rows)
            squares += (rows - low.fill(kept)).double().square().sum(0)
            for label in classes.unique().tolist():
                own = kept[classes == label].double()
                sums[label] += own.sum(0)
                products[label] += (own.T @ own)[above[0], above[1]]
        tensors = {"sums": sums, "products": products, "squares": squares}
        return cls({name: (tensor / len(labels)).float() for name, tensor in tensors.items()})

    @classmethod
    def shapes(cls, spec: ModelSpec, *, numbers: int = NUMBERS) -> dict[str, Size]:
        """Name the tensors' shapes; InputError if inputs are tokens, which have no mean, or too many numbers."""
        if isinstance(spec.inputs, Tokens):
            raise InputError(f"statistic {cls.name!r} takes images and numbers; the data has {spec.inputs}")
        size = LowFrequencies.of_size(spec.inputs.shape, numbers).size
        if size == 0:
            raise InputError(
                f"statistics.{cls.name}.numbers={numbers} with {spec.inputs.shape[0]} channels; allowed: at least one "
                "number a channel"
            )
        if size > MOST:
            raise InputError(
                f"statistic {cls.name!r} keeps inputs that are no images whole; the data has {size} numbers; allowed: "
                f"up to {MOST}"
            )
        return {
            "sums": Size([spec.classes, size]),
            "products": Size([spec.classes, size * (size + 1) // 2]),
            "squares": Size([spec.inputs.size]),
        }
