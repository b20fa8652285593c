"""Statistics as another package would write them."""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field, PositiveFloat
from torch import Size, Tensor

from fedfisher_core.client.local import Local, Releasing
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import Uniform, read_scale, write_scale
from fedfisher_core.communication.wire.structure import EXACT, Fixed, Structure
from fedfisher_core.communication.wire.tensors import SIGNED
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.privacy.release import add_noise


@dataclass(frozen=True)
class SignBits:
    """A sign an entry, and the mean magnitude of each tensor."""

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        return sum(tensor.size + 32 for tensor in tensors)

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        for array in tensors.values():
            write_scale(writer, np.float32(np.abs(array).mean()))
            writer.write((array.reshape(-1) < 0).astype(np.uint32), 1)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        decoded = {}
        for tensor in tensors:
            scale = read_scale(reader)
            negative = reader.read(tensor.size, 1).astype(np.float32)
            decoded[tensor.name] = (scale * (1 - 2 * negative)).astype(np.float32).reshape(tensor.shape)
        return decoded


@dataclass(frozen=True)
class Understated(SignBits):
    """A codec that announces less than it writes."""

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        return 8


class Greedy(Structure):
    """A structure that keeps to no share."""

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        return Uniform(23)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        return Uniform(23)


class LikeParameters(TensorStatistic, ABC):
    """Signed tensors named and shaped like the parameters."""

    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = SIGNED

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        return {name: parameter.shape for name, parameter in spec.skeleton().named_parameters()}


class Update(LikeParameters):
    """How far training went from the initial weights."""

    name: ClassVar[str] = "update"

    @classmethod
    def compute(cls, local: Local, *, step: PositiveFloat = 1.0) -> Self:
        parameters = local.network.named_parameters()
        return cls({name: step * (tensor.detach() - local.initial[name]) for name, tensor in parameters})


class UpdateSigns(Update):
    """The same, of which nothing but signs is sent."""

    name: ClassVar[str] = "update_signs"
    structure: ClassVar[Structure] = Fixed(SignBits())


class UnderstatedSigns(Update):
    name: ClassVar[str] = "understated_signs"
    structure: ClassVar[Structure] = Fixed(Understated())


class GreedyUpdate(Update):
    name: ClassVar[str] = "greedy_update"
    structure: ClassVar[Structure] = Greedy()


class ExactUpdate(Update):
    name: ClassVar[str] = "exact_update"
    structure: ClassVar[Structure] = EXACT


class WeightsAgain(Weights):
    """All that the weights say of themselves, under another name; it stays out of lists of what can be private."""

    name: ClassVar[str] = "weights_again"
    mechanisms: ClassVar[int | None] = None


class Sketch(TensorStatistic):
    """Random projections of the mean image."""

    name: ClassVar[str] = "sketch"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = SIGNED

    @classmethod
    def compute(
        cls, local: Local, *, rank: Annotated[int, Field(ge=1, le=9, description="numbers")] = 4, seed: int = 0
    ) -> Self:
        mean = local.examples.inputs.mean(0).flatten()
        return cls({"sketch": directions(rank, len(mean), seed) @ mean})

    @classmethod
    def shapes(cls, spec: ModelSpec, *, rank: int = 4) -> dict[str, Size]:
        return {"sketch": Size([rank])}


class NoisyMean(TensorStatistic):
    """The mean image, clipped to a unit ball, with a release of its own."""

    name: ClassVar[str] = "noisy_mean"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = SIGNED
    mechanisms: ClassVar[int | None] = 1

    @classmethod
    def compute(cls, local: Local, *, radius: PositiveFloat = 1.0) -> Self:
        return cls({"mean": clipped_sum(local, radius).float() / len(local.examples)})

    @classmethod
    def release(cls, local: Releasing, *, radius: PositiveFloat = 1.0) -> Self:
        deviation = radius * local.multiplier
        noisy = add_noise(clipped_sum(local, radius), deviation, local.noise_generator(cls.name))
        return cls({"mean": noisy.float() / len(local.examples)})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        return {"mean": Size([spec.inputs.size])}


def directions(rank: int, size: int, seed: int) -> Tensor:
    return torch.randn(rank, size, generator=torch.Generator().manual_seed(seed))


def clipped_sum(local: Local, radius: float) -> Tensor:
    images = local.examples.inputs.flatten(1).double()
    return (images * (radius / images.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


def made(statistic: type[TensorStatistic], spec: ModelSpec) -> TensorStatistic:
    """Made-up tensors of both signs."""
    generator = torch.Generator().manual_seed(0)
    return statistic.of(
        {name: torch.randn(shape, generator=generator) for name, shape in statistic.shapes(spec).items()}
    )
