"""One pass over the data: from chunks of examples to the sums of every approximation."""

from collections.abc import Mapping, Set
from functools import partial
from typing import TypedDict

import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError, MemoryLimitError, UnsupportedLayerError
from fedfisher_core.fisher.blocks import (
    FLUSH_EVERY,
    Approximation,
    Block,
    Portions,
    RunningSum,
    Scratch,
    add_gram,
    mirror,
)
from fedfisher_core.fisher.capture import Trace, backpropagate, measure, paddings_of, trace
from fedfisher_core.fisher.convolution_blocks import Conv2dBlock
from fedfisher_core.fisher.estimators import (
    Estimator,
    directions_per_example,
    draws_directions,
    output_directions,
)
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import (
    FisherLayer,
    fisher_layers,
    from_matrix,
    kfac_layers,
    own_parameters,
    vectors_of,
)
from fedfisher_core.fisher.linear_blocks import LinearBlock, OwnBlock
from fedfisher_core.fisher.normalisation_blocks import BatchNormBlock, GroupNormBlock, LayerNormBlock
from fedfisher_core.fisher.position_blocks import EmbeddingBlock, LinearPositionsBlock
from fedfisher_core.fisher.result import Fisher, require_finite
from fedfisher_core.fisher.truncation import Scatter
from fedfisher_core.fisher.weight_sharing import WeightSharing, require_positions, without_padding
from fedfisher_core.models.batch_norm import BatchNorm


def empty_blocks(
    layers: Mapping[str, FisherLayer],
    own: Mapping[str, nn.Parameter],
    probe: Trace,
    approximations: Set[Approximation],
    *,
    sharing: WeightSharing,
    workspace: int,
    like: Tensor,
    scratch: Scratch,
) -> dict[str, Block]:
    """The empty sums of all layers, and of parameters that no layer holds, by name; see `Conv2dBlock`.

    Args:
        probe: the trace of one example.
    """
    blocks: dict[str, Block] = {
        name: _empty_block(
            layer,
            probe.inputs[name].shape,
            probe.output_shapes[name],
            approximations,
            sharing=sharing,
            workspace=workspace,
            like=like,
            scratch=scratch,
        )
        for name, layer in layers.items()
    }
    return blocks | {name: OwnBlock(parameter, approximations, like=like) for name, parameter in own.items()}


def _empty_block(
    layer: FisherLayer,
    input_shape: torch.Size,
    output_shape: torch.Size,
    approximations: Set[Approximation],
    *,
    sharing: WeightSharing,
    workspace: int,
    like: Tensor,
    scratch: Scratch,
) -> Block:
    sizes: _Sizes = {"workspace": workspace, "like": like}
    match layer:
        case nn.Conv2d():
            return Conv2dBlock(
                layer, input_shape, output_shape, approximations, sharing=sharing, scratch=scratch, **sizes
            )
        case nn.Linear() if len(input_shape) == 2:
            return LinearBlock(layer, approximations, like=like)
        case nn.Linear():
            return LinearPositionsBlock(layer, input_shape, approximations, sharing=sharing, **sizes)
        case nn.Embedding():
            return EmbeddingBlock(layer, input_shape, approximations, **sizes)
        case nn.LayerNorm() | nn.RMSNorm():
            return LayerNormBlock(layer, input_shape, approximations, **sizes)
        case nn.GroupNorm():
            return GroupNormBlock(layer, input_shape, approximations, **sizes)
        case BatchNorm():
            return BatchNormBlock(layer, input_shape, approximations, **sizes)


class _Sizes(TypedDict):
    workspace: int
    like: Tensor


MAX_DENSE_PARAMETERS = 8192
"""Largest network whose dense Fisher is computed; in double precision it takes 512 MiB."""


class FisherPass:
    """One pass over the data.

    Args:
        model: the network, in evaluation mode.
        example: one example on the model's device, shape (1, ...).
        sharing: the form of K-FAC for layers that are applied at several positions.
        memory_limit: most bytes of working memory.

    Raises:
        InputError: one example does not fit the memory, or the network is too large for a dense Fisher.
        UnsupportedLayerError: a layer has no Fisher block.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Tensor,
        *,
        approximations: Set[Approximation],
        estimator: Estimator,
        memory_limit: int,
        sharing: WeightSharing = WeightSharing.EXPAND,
    ) -> None:
        self._model = model
        self._approximations = approximations
        self._factored = Approximation.KFAC in approximations
        self._layers = kfac_layers(model) if self._factored else fisher_layers(model)
        self._own = own_parameters(model)
        self._estimator = estimator
        self._examples = 0
        self._chunks = 0
        self._like = next(model.parameters()).detach()
        probe, graph_bytes = measure(model, self._layers, example, own=self._own)
        if self._factored:
            self._counted(probe)
        self.outputs = probe.outputs.shape[1]
        if self.outputs < 2:
            raise InputError(f"the model has {self.outputs} output; allowed for classification: at least 2")
        self._directions = directions_per_example(estimator, self.outputs)
        self._scatter = Scatter(self.outputs, self._like.device) if draws_directions(estimator) else None
        self._scratch = Scratch(self._like)
        self._dense = _dense_sum(model, self._like) if Approximation.DENSE in approximations else None
        self._outputs = [shape.numel() for shape in probe.output_shapes.values()]
        self._outputs += [copy.numel() for copy in probe.copies.values()]
        self._inputs = [tensor.numel() for tensor in probe.inputs.values()]
        self._graph_bytes, self._memory_limit = graph_bytes, memory_limit
        alone = Approximation.DENSE in approximations or not _has_factors(model)
        in_company = approximations if alone else {Approximation.DIAGONAL, Approximation.KFAC}
        nowhere = self._like.to("meta")
        empty = partial(empty_blocks, self._layers, self._own, probe, sharing=sharing)
        imagined = partial(empty, like=nowhere, scratch=Scratch(nowhere))
        left = [self._left_beside(imagined(asked, workspace=0)) for asked in (in_company, approximations)]
        self._most = Portions.on(self._like.device, memory=next((bytes_ for bytes_ in left if bytes_ >= 0), 0))
        self._company = imagined(in_company, workspace=self._most.workspace)
        self._blocks = empty(approximations, workspace=self._most.workspace, like=self._like, scratch=self._scratch)
        self.examples_per_chunk = self.fitting(self._directions)

    def fitting(self, directions: int) -> int:
        """Number of examples, at least 1, whose working memory fits if each has that many directions.

        How sums round depends on this number, and a diagonal must be the same with and without K-FAC in its pass. So
        both are counted, if the memory holds both.

        Raises:
            MemoryLimitError: one example does not fit the memory.
        """
        example = self._example_in_bytes(directions)
        largest = max(self._outputs) * self._like.element_size()
        for blocks in (self._company, self._blocks):
            held = self._held_in_bytes(blocks, directions)
            if held + example <= self._memory_limit:
                return max(1, min((self._memory_limit - held) // example, self._most.outputs // largest))
        raise MemoryLimitError(self._memory_limit, held + example)

    def _left_beside(self, blocks: Mapping[str, Block]) -> int:
        """Bytes of the working memory that the blocks and one example in flight leave."""
        held = self._held_in_bytes(blocks, self._directions)
        return self._memory_limit - held - self._example_in_bytes(self._directions)

    def _held_in_bytes(self, blocks: Mapping[str, Block], directions: int) -> int:
        """Memory of the sums, and the workspace of the most demanding block."""
        dense = 0 if self._dense is None else self._dense.size_in_bytes
        sums = sum(block.size_in_bytes for block in blocks.values())
        return dense + sums + max(block.workspace_in_bytes(directions) for block in blocks.values())

    def _example_in_bytes(self, directions: int) -> int:
        """Memory of one example in flight, with all its directions."""
        outputs, inputs = self._outputs, self._inputs
        # The gradients of all directions and of the one in flight, what one step of a backward pass and of a
        # block's sums hold in addition, and the output directions with their intermediate results.
        numbers = (directions + 1) * (sum(outputs) + max(outputs)) + 2 * max(outputs) + 2 * max(inputs, default=0)
        numbers += 4 * directions * self.outputs
        if self._dense is not None:
            numbers += 2 * directions * len(self._dense.partial)
        return self._graph_bytes + numbers * self._like.element_size()

    def add(self, inputs: Tensor, labels: Tensor | None, noise: Tensor | None, leading: int | None = None) -> None:
        """Add one chunk of examples.

        Args:
            inputs: shape (examples, ...), on the model's device.
            labels: for `Empirical`, their targets.
            noise: their part of `sampling_noise`, if directions are drawn.
            leading: for `Truncated`, how many directions of each are kept.
        """
        # Flushed before more is added: after the last chunk `result` reads the sums anyway.
        if self._chunks and self._chunks % FLUSH_EVERY == 0:
            self._flush()
        seen = trace(self._model, self._layers, inputs, own=self._own)
        counted = self._counted(seen) if self._factored else {}
        vectors = output_directions(
            seen.outputs.detach(),
            estimator=self._estimator,
            labels=labels,
            noise=noise,
            leading=leading,
        )
        if self._scatter is not None:
            samples = 0 if noise is None else noise.shape[1]
            self._scatter.add(seen.outputs.detach(), kept=leading or 0, samples=samples)
        for name, block in self._blocks.items():
            block.begin((seen.inputs | seen.copies)[name], len(vectors), counted=counted.get(name))
        for index, vector in enumerate(vectors):
            gradients = backpropagate(seen, vector, last=index + 1 == len(vectors))
            for name, block in self._blocks.items():
                block.add_direction(index, gradients[name])
            if self._dense is not None:
                self._add_dense(self._dense, gradients)
        for block in self._blocks.values():
            block.finish()
        self._chunks += 1
        self._examples += len(inputs)

    def _counted(self, seen: Trace) -> dict[str, Tensor]:
        """Which positions K-FAC counts, by layer with several of them; none where all count."""
        counted = without_padding({**self._layers, **paddings_of(self._model)}, seen.inputs)
        shared = [
            name
            for name, layer in self._layers.items()
            if isinstance(layer, nn.Embedding) or (isinstance(layer, nn.Linear) and seen.inputs[name].ndim > 2)
        ]
        for name in shared:
            positions = seen.output_shapes[name][1:-1].numel()
            require_positions(name, positions, counted)
        return {} if counted is None or bool(counted.all()) else dict.fromkeys(shared, counted)

    def _add_dense(self, dense: RunningSum, gradients: Mapping[str, Tensor]) -> None:
        """Add the outer products of whole gradients for one direction."""
        names = [name for name, _ in self._model.named_parameters()]
        rows: dict[str, Tensor] = {}
        for name, block in self._blocks.items():
            matrices = block.per_example(gradients[name])
            if name in self._own:
                rows[name] = matrices.flatten(1)
                continue
            columns = self._layers[name].weight.numel() // matrices.shape[1]
            rows[f"{name}.weight"] = matrices[..., :columns].flatten(1)
            for index, vector in enumerate(vectors_of(name, names)):
                rows[vector] = matrices[..., columns + index]
        add_gram(dense.partial, torch.cat([rows[name] for name in names], dim=1))

    def _flush(self) -> None:
        for block in self._blocks.values():
            block.flush()
        if self._dense is not None:
            self._dense.flush()

    def result(self, *, nominal_directions: int) -> Fisher:
        """Divide the sums by the number of examples; DivergedClientError if the Fisher is not finite.

        Args:
            nominal_directions: C' of `Block.kronecker`.
        """
        # The results need the memory.
        self._scratch.release()
        parameters = dict(self._model.named_parameters())
        diagonal, dense = None, None
        kfac: dict[str, Kronecker] | None = None
        if Approximation.DIAGONAL in self._approximations:
            found: dict[str, Tensor] = {}
            for name, block in self._blocks.items():
                found |= from_matrix(block.diagonal(self._examples), name, parameters)
            diagonal = {name: found[name] for name in parameters}
        if Approximation.KFAC in self._approximations:
            kfac = {}
            for name, block in self._blocks.items():
                kfac |= block.kronecker(name, self._examples, nominal_directions)
        if self._dense is not None:
            dense = mirror(self._dense.take()).div_(self._examples).to(self._like)
        scatter = None if self._scatter is None else self._scatter.relative()
        fisher = Fisher(diagonal=diagonal, kfac=kfac, dense=dense, scatter=scatter)
        require_finite(fisher, parameters)
        return fisher


def _dense_sum(model: nn.Module, like: Tensor) -> RunningSum:
    size = sum(parameter.numel() for parameter in model.parameters())
    if size > MAX_DENSE_PARAMETERS:
        raise InputError(
            f"a dense Fisher of {size} parameters has {size**2} elements; allowed: at most {MAX_DENSE_PARAMETERS} "
            f"parameters"
        )
    return RunningSum((size, size), like=like)


def _has_factors(model: nn.Module) -> bool:
    try:
        kfac_layers(model)
    except UnsupportedLayerError:
        return False
    return True
