"""Different codecs for matrices and for vectors of one statistic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfisher_core.communication.wire.codec import Array, Codec, TensorSpec
from fedfisher_core.communication.wire.packing import BitReader, BitWriter


@dataclass(frozen=True)
class ByDimension:
    """All matrices by one codec, and then all vectors by another."""

    matrices: Codec
    vectors: Codec

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """What both take."""
        matrices, vectors = by_dimension(tensors)
        return self.matrices.bits(matrices) + self.vectors.bits(vectors)

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append the matrices, and then the vectors."""
        self.matrices.encode({name: one for name, one in tensors.items() if one.ndim > 1}, writer)
        self.vectors.encode({name: one for name, one in tensors.items() if one.ndim == 1}, writer)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read the tensors back, in their order."""
        matrices, vectors = by_dimension(tensors)
        found = self.matrices.decode(matrices, reader) | self.vectors.decode(vectors, reader)
        return {tensor.name: found[tensor.name] for tensor in tensors}


def by_dimension(tensors: Sequence[TensorSpec]) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Part tensors into matrices and vectors, both in their order."""
    vectors = [tensor for tensor in tensors if len(tensor.shape) == 1]
    return [tensor for tensor in tensors if len(tensor.shape) > 1], vectors
