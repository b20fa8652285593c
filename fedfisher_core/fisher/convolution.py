"""The inputs of a convolution as patches, and the second moment of the patches, formed or not."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import RunningSum, add_gram, mirror

MAX_ROW_PRODUCTS = 64 * 2**20
"""Most bytes of row products; for layers that would need more, the patches are formed."""


@dataclass(frozen=True)
class Geometry:
    """Where the windows of a convolution lie; every pair is (vertical, horizontal).

    A grouped convolution is an ordinary one on each group's channels, with every group of an example as an example.

    Args:
        channels: input channels of a group.
        kernel: height and width of a window.
        stride: distance of neighbouring windows.
        dilation: distance of neighbouring elements of a window.
        border: elements added to the inputs left, right, above, below.
        border_mode: content of the border, as `torch.nn.functional.pad` names it.
        padded: height and width of the inputs with their border.
        positions: number of windows down and across.
        bias: whether a patch ends in a one.
    """

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    border: tuple[int, int, int, int]
    border_mode: str
    padded: tuple[int, int]
    positions: tuple[int, int]
    bias: bool

    @staticmethod
    def of(layer: nn.Conv2d, input_shape: torch.Size, output_shape: torch.Size) -> "Geometry":
        """Read the geometry off a layer and the shapes of its inputs and outputs, examples first."""
        kernel, dilation = _pair(layer.kernel_size), _pair(layer.dilation)
        if isinstance(layer.padding, str):
            total = [d * (k - 1) if layer.padding == "same" else 0 for d, k in zip(dilation, kernel, strict=True)]
            above, left = (t // 2 for t in total)
            below, right = total[0] - above, total[1] - left
        else:
            above, left = below, right = _pair(layer.padding)
        return Geometry(
            channels=input_shape[1] // layer.groups,
            kernel=kernel,
            stride=_pair(layer.stride),
            dilation=dilation,
            border=(left, right, above, below),
            border_mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode,
            padded=(input_shape[2] + above + below, input_shape[3] + left + right),
            positions=(output_shape[2], output_shape[3]),
            bias=layer.bias is not None,
        )

    @property
    def windows(self) -> int:
        """Number of windows in one example."""
        return self.positions[0] * self.positions[1]

    @property
    def patch_size(self) -> int:
        """Length of a patch, including the one of a bias."""
        return self.channels * self.kernel[0] * self.kernel[1] + self.bias

    def pad(self, inputs: Tensor) -> Tensor:
        """Add the border to inputs of shape (examples, channels, height, width)."""
        return F.pad(inputs, self.border, mode=self.border_mode) if any(self.border) else inputs

    def patches(self, padded: Tensor) -> Tensor:
        """Cut padded inputs, shape (examples, channels, height, width), into patches.

        Returns:
            Shape (patch size, examples, windows), with the elements of a patch in the order of the weight's.
        """
        n, c, v, h = padded.stride()
        windows = padded.as_strided(
            (self.channels, *self.kernel, len(padded), *self.positions),
            (c, v * self.dilation[0], h * self.dilation[1], n, v * self.stride[0], h * self.stride[1]),
        )
        result = padded.new_empty(self.patch_size, len(padded), self.windows)
        if self.bias:
            result[-1] = 1
        result[: self.patch_size - self.bias].view(windows.shape).copy_(windows)
        return result


def _pair(value: tuple[int, ...]) -> tuple[int, int]:
    vertical, horizontal = value
    return vertical, horizontal


class PatchMoment(RunningSum):
    """Sum of x x^T over all patches x, from the patches themselves."""

    def __init__(self, geometry: Geometry, *, like: Tensor) -> None:
        super().__init__((geometry.patch_size, geometry.patch_size), like=like)

    @staticmethod
    def cost(geometry: Geometry) -> int:
        """Multiplications for each example."""
        return geometry.windows * geometry.patch_size**2

    def add(self, patches: Tensor) -> None:
        """Add patches of shape (patch size, examples, windows)."""
        add_gram(self.partial, patches.flatten(1).T)

    def value(self) -> Tensor:
        """The sum in double precision, a new tensor of shape (patch size, patch size)."""
        return mirror(super().value())


class RowMoment:
    """Sum of x x^T over all patches x, from products of whole rows of the inputs.

    Two elements of a patch are at most a kernel's height of rows apart, and overlapping patches repeat the same
    products. So the products of each row with itself and the few rows below it are summed over the examples once, and
    the windows' positions are summed afterwards. For kernels that are large compared with the inputs' width this takes
    several times fewer multiplications than forming the patches.
    """

    def __init__(self, geometry: Geometry, *, like: Tensor) -> None:
        self._geometry = geometry
        width = geometry.padded[1] * geometry.channels
        # products[e] pairs every row with the row that is e (dilated) rows below it.
        self._products = [like.new_zeros(rows, width, width) for rows in self._rows(geometry)]
        self._inputs = like.new_zeros(geometry.padded[0], width)
        self._examples = 0
        self._total: Tensor | None = None

    @staticmethod
    def _rows(geometry: Geometry) -> list[int]:
        return [geometry.padded[0] - e * geometry.dilation[0] for e in range(geometry.kernel[0])]

    @classmethod
    def cost(cls, geometry: Geometry) -> int:
        """Multiplications for each example, which is also the number of elements held."""
        return sum(cls._rows(geometry)) * (geometry.padded[1] * geometry.channels) ** 2

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        total = self._geometry.patch_size**2 * torch.float64.itemsize
        return sum(p.nbytes for p in self._products) + self._inputs.nbytes + total

    def add(self, padded: Tensor) -> None:
        """Add padded inputs of shape (examples, channels, height, width)."""
        rows = padded.permute(0, 2, 3, 1).flatten(2).transpose(0, 1)
        for e, products in enumerate(self._products):
            products.baddbmm_(rows[: len(products)].transpose(1, 2), rows[e * self._geometry.dilation[0] :])
        self._inputs += rows.sum(1)
        self._examples += len(padded)

    def flush(self) -> None:
        """Sum the windows' positions into the double-precision total."""
        self._total = self.value()
        for products in self._products:
            products.zero_()
        self._inputs.zero_()
        self._examples = 0

    def value(self) -> Tensor:
        """The sum in double precision, a new tensor of shape (patch size, patch size)."""
        return self._partial() if self._total is None else self._partial().add_(self._total)

    def _partial(self) -> Tensor:
        """Sum what was added since the last flush over the windows' positions."""
        g = self._geometry
        total = self._inputs.new_zeros(g.patch_size, g.patch_size, dtype=torch.float64)
        height = g.stride[0] * (g.positions[0] - 1) + 1
        across = g.stride[1] * torch.arange(g.positions[1], device=total.device)
        columns = g.dilation[1] * torch.arange(g.kernel[1], device=total.device)[:, None] + across
        size = g.patch_size - g.bias
        blocks = total[:size, :size].unflatten(1, (g.channels, *g.kernel)).unflatten(0, (g.channels, *g.kernel))
        for e, products in enumerate(self._products):
            for top in range(g.kernel[0] - e):
                first = top * g.dilation[0]
                # So few terms lose nothing in single precision; converting each would cost more than the sum.
                pairs = products[first : first + height : g.stride[0]].sum(0).double()
                pairs = pairs.view(g.padded[1], g.channels, g.padded[1], g.channels).transpose(1, 2)
                block = pairs[columns[:, None], columns[None, :]].sum(2).permute(2, 0, 3, 1)
                blocks[:, top, :, :, top + e, :] = block
                if e:
                    blocks[:, top + e, :, :, top, :] = block.permute(2, 3, 0, 1)
        if g.bias:
            image = self._inputs.view(1, *g.padded, g.channels).permute(0, 3, 1, 2)
            sums = g.patches(image)[:-1].flatten(1).sum(1, dtype=torch.float64)
            total[-1, :-1] = sums
            total[:-1, -1] = sums
            total[-1, -1] = self._examples * g.windows
        return total


def patch_moment(geometry: Geometry, *, like: Tensor) -> PatchMoment | RowMoment:
    """An empty sum for the second moment of a layer's patches, computed in the cheaper way."""
    rows_fit = RowMoment.cost(geometry) * like.element_size() <= MAX_ROW_PRODUCTS
    if rows_fit and RowMoment.cost(geometry) < PatchMoment.cost(geometry):
        return RowMoment(geometry, like=like)
    return PatchMoment(geometry, like=like)
