"""The running sums of convolutions, including grouped ones."""

from collections.abc import Set

import torch
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import Approximation, Block, RunningSum, Scratch
from fedfisher_core.fisher.convolution import Geometry, PatchMoment, RowMoment, patch_moment
from fedfisher_core.fisher.weight_sharing import WeightSharing


class GroupMoment(RunningSum):
    """Sum of x x^T over all patches x of each group, where the geometry is that of a group's channels."""

    def __init__(self, geometry: Geometry, groups: int, *, like: Tensor) -> None:
        super().__init__((groups, geometry.patch_size, geometry.patch_size), like=like)

    def add(self, patches: Tensor) -> None:
        """Add patches of shape (patch size, examples groups, windows), with an example's groups next to one another."""
        products = torch.bmm(patches.transpose(0, 1), patches.permute(1, 2, 0))
        self.partial += products.unflatten(0, (-1, len(self.partial))).sum(0)


class _SquaredGradients:
    """The sum of a chunk's squared gradients, over examples first and over directions last.

    Args:
        shape: examples at a time (each group counts as one), columns, rows of a group, and directions.
        groups: of the convolution.
        scratch: memory for the gradients and their sum.
    """

    def __init__(self, shape: tuple[int, int, int, int], *, groups: int, scratch: Scratch) -> None:
        self._gradients, self._sum = scratch.take(2, *shape)
        self._sum.zero_()
        self._groups = groups

    def add(self, patches: Tensor, maps: Tensor) -> None:
        """Add some examples.

        Args:
            patches: shape (columns, examples, windows).
            maps: gradients at the layer's outputs, shape (examples, rows, directions, windows).
        """
        gradients = self._gradients[: len(maps)].flatten(2)
        torch.bmm(patches.transpose(0, 1), maps.flatten(1, 2).transpose(1, 2), out=gradients)
        self._sum[: len(maps)].flatten(2).addcmul_(gradients, gradients)

    def total(self) -> Tensor:
        """The sum, in the shape of the layer's matrix."""
        squares = self._sum.unflatten(0, (-1, self._groups)).sum(0).sum(3)
        return squares.mT.flatten(0, 1)


class Conv2dBlock(Block):
    """The running sums of a convolution.

    Args:
        input_shape: examples first.
        output_shape: examples first.
        sharing: the form of K-FAC; with *reduce*, patches are averaged over the windows and gradients are added.
        workspace: most bytes of patches and per-example gradients at a time, unless one example takes more.
        scratch: memory that `finish` may use.
    """

    def __init__(
        self,
        layer: nn.Conv2d,
        input_shape: torch.Size,
        output_shape: torch.Size,
        approximations: Set[Approximation],
        *,
        sharing: WeightSharing,
        workspace: int,
        like: Tensor,
        scratch: Scratch,
    ) -> None:
        geometry = Geometry.of(layer, input_shape, output_shape)
        rows, columns = layer.out_channels, geometry.patch_size
        super().__init__(rows, columns, geometry.windows, approximations, groups=layer.groups, like=like)
        self._geometry, self._workspace = geometry, workspace
        self._reduced = sharing is WeightSharing.REDUCE
        if self._reduced:
            self._summed_windows = 1
        self._moment = _empty_moment(geometry, layer.groups, sharing, like=like) if self._outputs else None
        self._scratch, self._chunk_scratch = scratch, Scratch(like)
        self._padded = self._maps = like.new_empty(0)

    @property
    def size_in_bytes(self) -> int:
        """Memory of the sums."""
        return super().size_in_bytes + (self._moment.size_in_bytes if self._moment else 0)

    def begin(self, inputs: Tensor, directions: int, *, counted: Tensor | None = None) -> None:
        """See `Block.begin`."""
        padded = self._geometry.pad(inputs)
        self._padded = padded.reshape(-1, self._geometry.channels, *padded.shape[2:])
        # A map's directions are adjacent in memory. So one product with an example's patches gives the gradients of
        # all directions, and one product of the maps gives the sum over all directions.
        self._maps = self._chunk_scratch.take(len(self._padded), self._group_rows, directions, self._windows)

    def add_direction(self, index: int, gradients: Tensor) -> None:
        """See `Block.add_direction`."""
        self._maps[:, :, index] = self._grouped(gradients)

    def finish(self) -> None:
        """See `Block.finish`."""
        if isinstance(self._moment, RowMoment):
            self._moment.add(self._padded)
        directions = self._maps.shape[2]
        step = min(self._groups * self._step(directions), len(self._maps))
        squares = None
        if self._squares is not None and self._windows > 1:
            shape = (step, self._geometry.patch_size, self._group_rows, directions)
            squares = _SquaredGradients(shape, groups=self._groups, scratch=self._scratch)
        for padded, maps in zip(self._padded.split(step), self._maps.split(step), strict=True):
            if self._outputs is not None:
                self._outputs.partial += self._second_moment(maps.sum(3) if self._reduced else maps.flatten(2))
            if self._squares is None and not isinstance(self._moment, PatchMoment | GroupMoment):
                continue
            patches = self._geometry.patches(padded)
            if isinstance(self._moment, PatchMoment | GroupMoment):
                self._moment.add(patches.mean(2, keepdim=True) if self._reduced else patches)
            if squares is not None:
                squares.add(patches, maps)
            elif self._squares is not None:
                self._squares.partial += self._squares_of_one_window(patches, maps)
        if self._squares is not None and squares is not None:
            self._squares.partial += squares.total()
        self._padded = self._maps = self._like.new_empty(0)

    def _second_moment(self, maps: Tensor) -> Tensor:
        """Sum g g^T over examples, directions and windows, shape (groups, rows of a group, rows of a group).

        Args:
            maps: shape (examples groups, rows of a group, directions windows).
        """
        _, rows, columns = maps.shape
        if rows <= columns:
            return torch.bmm(maps, maps.mT).unflatten(0, (-1, self._groups)).sum(0)
        # An example's product would be larger than its maps, so one product takes all examples.
        together = maps.unflatten(0, (-1, self._groups)).permute(1, 2, 0, 3).flatten(2)
        return torch.bmm(together, together.mT)

    def _squares_of_one_window(self, patches: Tensor, maps: Tensor) -> Tensor:
        """Sum squared gradients over examples and directions for a layer with one window, where a gradient is g x^T.

        Args:
            patches: shape (columns, examples groups, 1).
            maps: shape (examples groups, rows of a group, directions, 1).
        """
        lengths = maps.square().sum((2, 3)).unflatten(0, (-1, self._groups)).permute(1, 2, 0)
        inputs = patches.square().squeeze(2).T.unflatten(0, (-1, self._groups)).transpose(0, 1)
        return torch.bmm(lengths, inputs).flatten(0, 1)

    def per_example(self, gradients: Tensor) -> Tensor:
        """See `Block.per_example`."""
        products = self._grouped(gradients) @ self._geometry.patches(self._padded).permute(1, 2, 0)
        return products.view(len(gradients), self._rows, -1)

    def flush(self) -> None:
        """See `Block.flush`."""
        super().flush()
        if self._moment is not None:
            self._moment.flush()

    def workspace_in_bytes(self, directions: int) -> int:
        """See `Block.workspace_in_bytes`."""
        return self._step(directions) * self._bytes_per_example(directions)

    def _step(self, directions: int) -> int:
        step, threads = max(1, self._workspace // self._bytes_per_example(directions)), torch.get_num_threads()
        # Threads share the examples of a product. Without a multiple of their number, some would wait for the last.
        return step - step % threads if step > threads else step

    def _bytes_per_example(self, directions: int) -> int:
        """Patches, per-example gradients and their squares, and products of maps or of the patches of groups."""
        columns, rows = self._geometry.patch_size, self._group_rows
        numbers = columns * self._windows + 2 * directions * rows * columns + rows**2
        # Counted even when no factors are asked for: how a diagonal rounds depends on the step.
        if self._groups > 1:
            numbers += columns**2
        return self._groups * numbers * self._like.element_size()

    def _grouped(self, gradients: Tensor) -> Tensor:
        """Gradients at the outputs with each group as an example, shape (examples groups, rows of a group, windows)."""
        return gradients.reshape(-1, self._group_rows, self._windows)

    def _input_moment(self, scale: float) -> Tensor:
        assert self._moment is not None
        moment = self._moment.value().mul_(scale).to(self._like)
        return moment.view(self._groups, *moment.shape[-2:])


def _empty_moment(
    geometry: Geometry, groups: int, sharing: WeightSharing, *, like: Tensor
) -> PatchMoment | RowMoment | GroupMoment:
    if groups > 1:
        return GroupMoment(geometry, groups, like=like)
    # Products of rows are sums over windows, not those of averages over windows.
    return PatchMoment(geometry, like=like) if sharing is WeightSharing.REDUCE else patch_moment(geometry, like=like)
