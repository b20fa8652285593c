"""FedLPA: layers' posteriors with Kronecker factors, aggregated by descent from a closed form."""

import math
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.fisher.capture import trace
from fedfisher_core.fisher.kronecker import Kronecker, KroneckerSum
from fedfisher_core.fisher.layers import factored_layers, from_matrix, groups_of, join, matrix_names, to_matrix
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import proportions
from fedfisher_core.methods.shared.second_moments import factor_scale
from fedfisher_core.methods.solvers.first_order import normal_descent
from fedfisher_core.models.spec import ModelSpec, Parameters


def _supports(spec: ModelSpec) -> None:
    """Refuse networks with diagonal factors, which its closed form does not have."""
    factored_layers(spec.skeleton())


@method(
    "fedlpa",
    uploads=(Weights, KFAC),
    sees_each=(),
    reference="https://arxiv.org/abs/2310.00339",
    supports=_supports,
)
def fedlpa(
    server: Server,
    uploads: Sequence[Upload],
    *,
    damping: Annotated[PositiveFloat, Field(description="epsilon, added to the diagonals of A_i and G_i")] = 0.001**0.5,
    steps: Annotated[PositiveInt, Field(description="of gradient descent, for each layer")] = 10_000,
    rate: Annotated[PositiveFloat, Field(description="of gradient descent")] = 1.0,
) -> Aggregate:
    """Descend towards sum_i p_i G_i W A_i = sum_i p_i G_i W_i A_i in every layer (Liu et al. 2024).

    With A_i + epsilon I and G_i + epsilon I for the factors and Z for the right-hand side, W starts at
    (sum_i p_i G_i)^-1 Z (sum_i p_i A_i)^-1 and goes down the mean square of the residual. That is
    `experiments_our.py` of the authors' repository (lebronlambert/FedLPA_NeurIPS2024) with the epsilon of its scripts,
    sqrt(1 - 0.999), and the scale of its factors. It returns the better of start and end on the test set; this returns
    the end. The descent does not converge, so that steps and rate are part of the method; where the rate is too large
    for a layer, it diverges. The paper has the empirical Fisher, and uncompressed uploads: `fisher.estimator` and
    `wire.budget` choose them here.
    """
    shares = proportions(uploads)
    parts: list[Parameters] = []
    like = uploads[0][Weights].tensors
    for matrix, scale in factor_scales(server).items():
        total = KroneckerSum.of([_damped(upload[KFAC].factors[matrix], scale, damping) for upload in uploads], shares)
        matrices = torch.stack([to_matrix(upload[Weights].tensors, matrix).double() for upload in uploads])
        target = total.products(matrices).sum(0)
        end = normal_descent(total.product, _closed_form(total, shares, target), target, steps=steps, rate=rate)
        parts.append(from_matrix(end.float(), matrix, like))
    merged = join(parts)
    return Aggregate.of({name: merged[name] for name in like})


def factor_scales(server: Server) -> dict[str, float]:
    """How much larger a matrix's A is here than in the authors' code, and G smaller: sqrt(C') S^2, by matrix.

    C' is the number of nominal directions, and S that of windows an example of a convolution, 1 of other layers. They
    divide sum x x^T by N S^2 where `Block.kronecker` divides by N / sqrt(C'). The product of A and G does not depend on
    the scale, but the effect of epsilon does.
    """
    scale = factor_scale(server)
    network = server.spec.skeleton().eval()
    layers = factored_layers(network)
    seen = trace(network, layers, server.spec.inputs.zeros(1).to("meta"))
    return {
        matrix: scale * (math.prod(shape[2:]) if isinstance(layers[name], nn.Conv2d) else 1) ** 2
        for name, shape in seen.output_shapes.items()
        for matrix in matrix_names(name, groups_of(layers[name]))
    }


def _damped(factors: Kronecker, scale: float, damping: float) -> Kronecker:
    """Divide A by the scale and multiply G, and add a multiple of the identity to both.

    In double precision, as the product of the two is hardly regular.
    """
    inputs, outputs = factors.inputs.double() / scale, scale * factors.outputs.double()
    return Kronecker(
        inputs + damping * torch.eye(len(inputs)).to(inputs), outputs + damping * torch.eye(len(outputs)).to(outputs)
    )


def _closed_form(total: KroneckerSum, shares: Sequence[float], target: Tensor) -> Tensor:
    """Take the mean of products for the product of means."""
    rows, columns = total.outputs.shape[1], total.inputs.shape[1]
    inputs = torch.tensordot(total.inputs.new_tensor(shares), total.inputs.view(-1, columns, columns), dims=1)
    outputs = total.outputs.view(rows, -1, rows).sum(1)
    return torch.linalg.solve(inputs, torch.linalg.solve(outputs, target), left=False)
