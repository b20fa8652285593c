"""RegMean: linear layers whose outputs are nearest to the clients' own on their inputs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions, weighted_sum
from fedfisher_core.methods.shared.second_moments import scale_off_diagonal
from fedfisher_core.methods.shared.selection import Fractions, keep_best, tries_several
from fedfisher_core.models.spec import Parameters


@method(
    "regmean",
    uploads=(Weights, Gram),
    sees_each=(),
    reference="https://arxiv.org/abs/2212.09849",
    validates=tries_several("off_diagonal"),
)
def regmean(
    server: Server,
    uploads: Sequence[Upload],
    *,
    off_diagonal: Fractions = (0.1, 0.9),
) -> Aggregate:
    """Solve a least-squares problem for every linear layer (Jin et al. 2023, equation 2).

    W^T = (sum_i p_i G_i)^+ sum_i p_i G_i W_i^T, with the Gram matrices G_i of the layer's inputs. Clients count by
    their examples in the linear layers' weights, and alike in the plain mean of all other parameters, as in FedFisher's
    code (Divyansh03/FedFisher, `algs/regmean.py`). RegMean's own code (bloomberg/dataless-model-merging,
    `src/model_merge/avg_merger.py`) has neither weighted, or, where a run is given coefficients of its models, both.

    Args:
        off_diagonal: factors on the off-diagonal entries of G_i; of several, the best on the validation set is kept.
    """
    return keep_best(server, off_diagonal, lambda scale: _merge(uploads, scale), name="off_diagonal")


def _merge(uploads: Sequence[Upload], scale: float) -> Parameters:
    merged = weighted_sum(Column(uploads, lambda upload: upload[Weights].tensors), [1 / len(uploads)] * len(uploads))
    left: dict[str, Tensor] = {}
    right: dict[str, Tensor] = {}
    for share, upload in zip(proportions(uploads), uploads, strict=True):
        models = upload[Weights].tensors
        for layer, gram in upload[Gram].tensors.items():
            # The paper's format leaves a matrix that is not symmetric.
            symmetric = (gram.double() + gram.double().T) / 2
            shrunk = share * scale_off_diagonal(symmetric, scale)
            product = shrunk @ models[f"{layer}.weight"].double().T
            left[layer] = left[layer].add_(shrunk) if layer in left else shrunk
            right[layer] = right[layer].add_(product) if layer in right else product
    return merged | {f"{layer}.weight": least_squares(gram, right[layer]) for layer, gram in left.items()}


def least_squares(gram: Tensor, product: Tensor) -> Tensor:
    """Solve the normal equations of a linear layer.

    Args:
        gram: sum_i p_i G_i, shape (inputs, inputs), in double precision.
        product: sum_i p_i G_i W_i^T, shape (inputs, outputs), likewise.

    Returns:
        W, shape (outputs, inputs), in single precision.
    """
    # Pixels that are always 0 make the sum singular: the pseudo-inverse leaves their weights at 0. Eigenvalues below
    # its cutoff are rounding, as the matrices were sent in single precision.
    return (torch.linalg.pinv(gram, rtol=torch.finfo(torch.float32).eps, hermitian=True) @ product).T.float()
