"""Normal distributions of several classes in few numbers: means, leading directions, and variances left by these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedfisher_core.communication.wire.codec import Array, Codec, TensorSpec
from fedfisher_core.communication.wire.elementwise import MAX_QUANTISED_WIDTH, Float32
from fedfisher_core.communication.wire.leading import Truncated, first_rows
from fedfisher_core.communication.wire.packing import BitReader, BitWriter
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import PAPER_WIDTH
from fedfisher_core.engine.errors import CorruptArtifactError, InputError


@dataclass(frozen=True)
class Owned:
    """The first directions of all classes with their classes, and the classes' means and shares.

    Six tensors, in this order: shares of shape (c,), means of shape (c, m), directions of shape (r, m), the longest
    first, owners of shape (r,), each the number of a class, standard deviations of shape (m,), and residuals of shape
    (n,). Shares and owners arrive as they are, residuals as finely as means, and the rest as `Truncated` has it.

    Args:
        moments: of means, directions and deviations.
    """

    moments: Truncated

    @classmethod
    def of(cls, rows: int, width: int) -> "Owned":
        """Send `rows` directions with entries of `width` bits; see `Truncated`."""
        return cls(Truncated(rows, width))

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """Those of the moments and the residuals, 32 a share, and as many for an owner as number the classes."""
        shares, moments, _, residuals = _split(tensors)
        owners = self.moments.rows * _owner_width(shares)
        return Float32().bits([shares]) + owners + self.moments.bits(moments) + self.moments.around.bits([residuals])

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the tensors; an InputError where an owner is not the number of a class."""
        shares, means, directions, owners, deviations, residuals = tensors.values()
        codes = owners[: self.moments.rows]
        if not np.isin(codes, np.arange(len(shares))).all():
            raise InputError(f"owners are {codes.tolist()}; allowed: whole numbers from 0 to {len(shares) - 1}")
        Float32().encode({"shares": shares}, writer)
        writer.write(codes.astype(np.uint32), _owner_width(TensorSpec("shares", shares.shape)))
        self.moments.encode({"means": means, "directions": directions, "deviations": deviations}, writer)
        self.moments.around.encode({"residuals": residuals}, writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read them back, 0 where none was sent; a CorruptArtifactError where an owner is not the number of a class."""
        shares, moments, kept, residuals = _split(tensors)
        known = Float32().decode([shares], reader)[shares.name]
        codes = reader.read(self.moments.rows, _owner_width(shares))
        if codes.max(initial=0) >= shares.size:
            raise CorruptArtifactError(f"payload has a direction of class {codes.max()}; expected below {shares.size}")
        owners = np.zeros(kept.shape, dtype=np.float32)
        owners[: len(codes)] = codes
        found = self.moments.decode(moments, reader) | self.moments.around.decode([residuals], reader)
        decoded = {shares.name: known, kept.name: owners, **found}
        return {tensor.name: decoded[tensor.name] for tensor in tensors}


def _split(tensors: Sequence[TensorSpec]) -> tuple[TensorSpec, list[TensorSpec], TensorSpec, TensorSpec]:
    shares, means, directions, owners, deviations, residuals = tensors
    return shares, [means, directions, deviations], owners, residuals


def _owner_width(shares: TensorSpec) -> int:
    """Bits that number the classes, at least one."""
    return max(1, (shares.size - 1).bit_length())


class Mixture(Structure):
    """Means of classes, and directions of all of them in the order of their lengths, of which the first say most."""

    def require(self, statistic: str, tensors: Sequence[TensorSpec]) -> None:
        """Make sure that tensors are shares, means, directions, owners, deviations and residuals."""
        shapes = [tensor.shape for tensor in tensors]
        means, directions, residuals = (shapes[1], shapes[2], shapes[5]) if len(shapes) == 6 else ((), (), ())
        wanted = [means[:1], means, directions[:1] + means[1:], directions[:1], means[1:], residuals]
        if len(means) != 2 or len(residuals) != 1 or shapes != wanted:
            raise InputError(
                f"statistic {statistic!r} has tensors of shapes {shapes}; allowed: (c,), (c, m), (r, m), (r,), (m,), "
                "(n,)"
            )

    def shorten(self, tensors: Sequence[TensorSpec], bits: int) -> Codec | None:
        """All directions where each entry can have 4 bits, else as many as can."""
        return first_rows(Owned.of, tensors, bits, rows=tensors[2].shape[0], most=MAX_QUANTISED_WIDTH)

    def shorten_as_paper(self, tensors: Sequence[TensorSpec], bits: int, *, factor_bits: int) -> Codec | None:
        """The same, with the paper's 16 bits an entry at most."""
        return first_rows(Owned.of, tensors, bits, rows=tensors[2].shape[0], most=PAPER_WIDTH)


MIXTURE = Mixture()
