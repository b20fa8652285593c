"""Exact Fishers of a classifier, computed by nngeometry.

Version 0.3 takes the root of the softmax covariance as sqrt(p_c) (e_c - p), which stays finite for confident networks.
"""

from typing import Any

from torch import Tensor, nn

from fedfisher_core.data.tensors import Examples
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import fisher_layers


def diagonal(network: nn.Module, examples: Examples, *, batch_size: int) -> dict[str, Tensor]:
    """Compute the diagonal Fisher.

    Args:
        network: a classifier in evaluation mode.
        examples: its data, on the same device.
        batch_size: examples at a time.

    Returns:
        Mean over the examples of diag(J^T (diag p - p p^T) J), by parameter.

    Raises:
        UnsupportedLayerError: the network has a layer without a Fisher block.
    """
    from nngeometry.object import PMatDiag

    fisher_layers(network)
    matrix = _fisher(network, examples, batch_size, PMatDiag)
    names = dict(network.named_parameters())
    pieces = matrix.get_diag().split([parameter.numel() for parameter in names.values()])
    return {
        name: piece.reshape(parameter.shape) for (name, parameter), piece in zip(names.items(), pieces, strict=True)
    }


def kfac(network: nn.Module, examples: Examples, *, batch_size: int) -> dict[str, Kronecker]:
    """Compute the Kronecker factors.

    Args:
        network: a classifier in evaluation mode.
        examples: its data, on the same device.
        batch_size: examples at a time.

    Returns:
        The Fisher block by layer, a bias as the last of a layer's inputs.

    Raises:
        UnsupportedLayerError: the network has a layer without a Fisher block.
    """
    from nngeometry.object import PMatKFAC

    layers = fisher_layers(network)
    matrix = _fisher(network, examples, batch_size, PMatKFAC)
    blocks = zip(layers, matrix.data.values(), strict=True)
    return {layer: Kronecker(inputs=inputs, outputs=outputs) for layer, (inputs, outputs) in blocks}


def _fisher(network: nn.Module, examples: Examples, batch_size: int, representation: type) -> Any:
    from nngeometry.metrics import FIM
    from torch.utils.data import DataLoader, TensorDataset

    with_shape = network(examples.inputs[:1])
    return FIM(
        model=network,
        loader=DataLoader(TensorDataset(examples.inputs, examples.labels), batch_size=batch_size),
        representation=representation,
        n_output=with_shape.shape[1],
        variant="classif_logits",
        device=examples.inputs.device,
    )
