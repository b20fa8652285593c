"""The paper's codec for matrices: a truncated singular value decomposition, quantised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fedfisher_core.communication.wire.codec import Array, BitReader, BitWriter, TensorSpec
from fedfisher_core.communication.wire.elementwise import (
    SCALE_BITS,
    read_scale,
    uniform_codes,
    uniform_values,
    write_scale,
)
from fedfisher_core.engine.errors import InputError


@dataclass(frozen=True)
class LowRank:
    """U_r S_r V_r^T, each of the three quantised uniformly (Jhunjhunwala et al. 2024, Equation 118).

    The decoded matrix need not be symmetric or positive semi-definite, as U and V are rounded separately.

    Args:
        rank: r, common to all matrices; a smaller matrix keeps all it has.
        levels_log2: s of the quantiser, the paper's 32 / s_q; with the sign an entry takes s + 1 bits, where the paper
            counts s: 9 and 8 for s_q = 4.
    """

    rank: int
    levels_log2: int = 8

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise InputError(f"rank is {self.rank}; allowed: 1 or more")

    def bits(self, tensors: Sequence[TensorSpec]) -> int:
        """(s + 1) (rows r + r + columns r) + 3 * 32 bits a matrix."""
        return sum((self.levels_log2 + 1) * size + SCALE_BITS for tensor in tensors for size in self._sizes(tensor))

    def encode(self, tensors: Mapping[str, Array], writer: BitWriter) -> None:
        """Append each matrix's U, S and V."""
        for name, array in tensors.items():
            rank = self._rank(TensorSpec(name, array.shape))
            left, singular, right = torch.linalg.svd(torch.from_numpy(array), full_matrices=False)
            for part in (left[:, :rank], singular[:rank], right[:rank]):
                scale, codes = uniform_codes(part.contiguous().numpy(), self.levels_log2)
                write_scale(writer, scale)
                writer.write(codes, self.levels_log2 + 1)

    def decode(self, tensors: Sequence[TensorSpec], reader: BitReader) -> dict[str, Array]:
        """Read U, S and V of each matrix and multiply them."""
        decoded = {}
        for tensor in tensors:
            rank = self._rank(tensor)
            left, singular, right = (self._read(size, reader) for size in self._sizes(tensor))
            scaled = torch.from_numpy(left.reshape(-1, rank) * singular)
            decoded[tensor.name] = (scaled @ torch.from_numpy(right.reshape(rank, -1))).numpy()
        return decoded

    def _read(self, size: int, reader: BitReader) -> Array:
        scale = read_scale(reader)
        return uniform_values(scale, reader.read(size, self.levels_log2 + 1), self.levels_log2)

    def _rank(self, tensor: TensorSpec) -> int:
        if len(tensor.shape) != 2:
            raise InputError(f"tensor {tensor.name!r} has shape {tensor.shape}; allowed: a matrix")
        return min(self.rank, *tensor.shape)

    def _sizes(self, tensor: TensorSpec) -> tuple[int, int, int]:
        rank = self._rank(tensor)
        rows, columns = tensor.shape
        return rows * rank, rank, rank * columns
