"""The empty sums of a network: which layer is summed in which way."""

from collections.abc import Mapping, Set

import torch
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import Approximation, Block
from fedfisher_core.fisher.capture import Trace
from fedfisher_core.fisher.convolution_block import Conv2dBlock
from fedfisher_core.fisher.layers import FisherLayer
from fedfisher_core.fisher.linear_block import LinearBlock
from fedfisher_core.fisher.normalisation_blocks import BatchNormBlock, GroupNormBlock, LayerNormBlock
from fedfisher_core.fisher.place_blocks import EmbeddingBlock, LinearPlacesBlock
from fedfisher_core.fisher.scratch import Scratch
from fedfisher_core.models.batch_norm import BatchNorm


def empty_blocks(
    layers: Mapping[str, FisherLayer],
    probe: Trace,
    approximations: Set[Approximation],
    *,
    workspace: int,
    like: Tensor,
    scratch: Scratch,
) -> dict[str, Block]:
    """The empty sums of all layers.

    Args:
        layers: by name.
        probe: what one example showed.
        approximations: what to sum.
        workspace: see `Conv2dBlock`.
        like: a tensor of the type and device to compute in.
        scratch: memory that convolutions may use.
    """
    return {
        name: _empty_block(
            layer,
            probe.inputs[name].shape,
            probe.output_shapes[name],
            approximations,
            workspace=workspace,
            like=like,
            scratch=scratch,
        )
        for name, layer in layers.items()
    }


def _empty_block(
    layer: FisherLayer,
    input_shape: torch.Size,
    output_shape: torch.Size,
    approximations: Set[Approximation],
    *,
    workspace: int,
    like: Tensor,
    scratch: Scratch,
) -> Block:
    """The empty sums of a layer; see `Conv2dBlock` for the arguments."""
    match layer:
        case nn.Conv2d():
            return Conv2dBlock(
                layer, input_shape, output_shape, approximations, workspace=workspace, like=like, scratch=scratch
            )
        case nn.Linear() if len(input_shape) == 2:
            return LinearBlock(layer, approximations, like=like)
        case nn.Linear():
            return LinearPlacesBlock(layer, input_shape, approximations, workspace=workspace, like=like)
        case nn.Embedding():
            return EmbeddingBlock(layer, input_shape, approximations, workspace=workspace, like=like)
        case nn.LayerNorm():
            return LayerNormBlock(layer, input_shape, approximations, workspace=workspace, like=like)
        case nn.GroupNorm():
            return GroupNormBlock(layer, input_shape, approximations, workspace=workspace, like=like)
        case BatchNorm():
            return BatchNormBlock(layer, input_shape, approximations, workspace=workspace, like=like)
