"""LoRA's products: what adapters add to the weights of linear layers, D = B A, for methods that merge these."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.methods.shared.averaging import mean_parameters, proportions
from fedfisher_core.models.spec import ModelSpec, Parameters

_A, _B = "lora_A", "lora_B"


def pairs_of(names: Iterable[str]) -> dict[str, str]:
    """The names of the factors B of adapters, by those of the factors A."""
    known = set(names)
    return {name: other for name in known if (other := name.replace(_A, _B)) != name and other in known}


def require_adapters(spec: ModelSpec) -> None:
    """Refuse a network without adapters, by an UnsupportedLayerError."""
    if not pairs_of(spec.shapes()):
        raise UnsupportedLayerError(
            f"model {spec.name!r} has no adapters; allowed: networks with {_A!r} and {_B!r}, such as minilm/lora"
        )


def products_of(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each adapter's product B A in double precision, by the name of its A."""
    pairs = pairs_of(parameters)
    return {one: parameters[pairs[one]].double() @ parameters[one].double() for one in sorted(pairs)}


def mean_products(uploads: Sequence[Upload]) -> dict[str, Tensor]:
    """sum_i p_i B_i A_i in double precision, by the name of A."""
    total: dict[str, Tensor] = {}
    for weight, upload in zip(proportions(uploads), uploads, strict=True):
        for name, product in products_of(upload[Weights].tensors).items():
            total[name] = total.get(name, 0) + weight * product
    return total


def with_products(uploads: Sequence[Upload], products: Mapping[str, Tensor], rank: int) -> Parameters:
    """The mean of the clients' weights, with the factors of given products in the place of the adapters' means."""
    mean = mean_parameters(uploads)
    pairs = pairs_of(mean)
    factors: Parameters = {}
    for name, product in products.items():
        factors[pairs[name]], factors[name] = factorised(product, rank)
    return {name: factors.get(name, tensor) for name, tensor in mean.items()}


def factorised(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The nearest product B A of a rank, by the leading singular triples; both factors have half of each value.

    Returns:
        B, shape (rows, rank), and A, shape (rank, columns), in single precision; zero beyond the product's size.
    """
    left, values, right = torch.linalg.svd(product, full_matrices=False)
    kept = min(rank, len(values))
    left, roots, right = left[:, :kept], values[:kept].sqrt(), right[:kept]
    # A singular vector has no sign of its own.
    signs = torch.where(left.gather(0, left.abs().argmax(0, keepdim=True)) < 0, -1.0, 1.0)
    made = product.new_zeros(product.shape[0], rank), product.new_zeros(rank, product.shape[1])
    made[0][:, :kept] = left * signs * roots
    made[1][:kept] = right * (signs * roots).T
    return made[0].float(), made[1].float()
