"""LoRA's products: what adapters add to the weights of linear layers, D = B A, for methods that merge these."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Size, Tensor, nn

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Column, Upload
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.server import Aggregate, Server
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


def merge_products(
    function: Callable[..., Aggregate], server: Server, uploads: Sequence[Upload], **settings: Any
) -> Aggregate:
    """Have a method for weights merge products, and cut what it makes of each to the server's rank.

    The method sees a network in which each adapter is one linear layer with the weights B A, by the name of A. What it
    may be sent is the weights, Gram matrices and K-FAC factors. Gram matrix and input factor of that layer are those of
    A, which has its inputs; its output factor is that of B, which has its outputs.

    Args:
        function: leaves one network of the shape that it sees.
        settings: of the function.
    """
    products = _ServerOfProducts(server)
    made = function(products, Column(uploads, as_products), **settings)
    (merged,) = made.networks
    return replace(made, networks=(products.spec.factors(merged),))


def as_products(upload: Upload) -> Upload:
    """What a client would send if each of its adapters were one linear layer."""
    seen = {kind: view(upload[kind]) for kind, view in _VIEWS.items() if kind in upload.statistics}
    return Upload(upload.num_examples, seen)


def dense(parameters: Mapping[str, Tensor]) -> Parameters:
    """Put the products, in single precision, in the places of the factors A, and leave out the factors B."""
    made, gone = products_of(parameters), set(pairs_of(parameters).values())
    return {name: made[name].float() if name in made else one for name, one in parameters.items() if name not in gone}


@dataclass(frozen=True)
class ProductSpec(ModelSpec):
    """A network as methods see it that merge products; it is run with the nearest factors of the server's rank."""

    adapted: ModelSpec = field(kw_only=True)

    @classmethod
    def of(cls, adapted: ModelSpec) -> "ProductSpec":
        """Take a network with adapters."""
        return cls(adapted.name, adapted.inputs, adapted.classes, adapted.bias, adapted=adapted)

    def skeleton(self) -> nn.Module:
        """Refuse: no network of the family has products in the place of factors, and `load` takes factors of them."""
        raise RuntimeError(
            f"model {self.name!r} was asked for a network with products in the place of adapters, which its family "
            "does not build; allowed: shapes, learnt, load and factors"
        )

    def shapes(self) -> dict[str, Size]:
        """See `ModelSpec`; of products in the place of factors."""
        shapes = self.adapted.shapes()
        pairs = pairs_of(shapes)
        return {
            name: Size([shapes[pairs[name]][0], shape[1]]) if name in pairs else shape
            for name, shape in shapes.items()
            if name not in pairs.values()
        }

    def learnt(self) -> frozenset[str]:
        """See `ModelSpec`."""
        return self.adapted.learnt() & self.shapes().keys()

    def load(self, parameters: Mapping[str, Tensor]) -> nn.Module:
        """See `ModelSpec`."""
        return self.adapted.load(self.factors(parameters))

    def factors(self, parameters: Mapping[str, Tensor]) -> Parameters:
        """Undo `dense`, up to what the rank cuts off."""
        shapes = self.adapted.shapes()
        found = dict(parameters)
        for one, other in pairs_of(shapes).items():
            found[other], found[one] = factorised(parameters[one].double(), shapes[one][0])
        return {name: found[name] for name in shapes}


class _ServerOfProducts(Server):
    """A server whose network and start have products in the place of adapters."""

    spec: ProductSpec

    def __init__(self, server: Server) -> None:
        self._server = server
        self.spec = ProductSpec.of(server.spec)
        self.dataset, self.fisher = server.dataset, server.fisher
        self.generator, self.device = server.generator, server.device

    @computed_once
    def initial(self) -> Parameters:
        """See `Server`."""
        return dense(self._server.initial)

    @property
    def used_validation(self) -> bool:
        """See `Server`."""
        return self._server.used_validation

    @property
    def can_validate(self) -> bool:
        """See `Server`."""
        return self._server.can_validate

    @property
    def validation(self) -> Examples:
        """See `Server`."""
        return self._server.validation


def _weights(sent: Statistic) -> Weights:
    return Weights(dense(sent.tensors))


def _gram(sent: Statistic) -> Gram:
    gone = set(pairs_of(sent.tensors).values())
    return Gram({layer: tensor for layer, tensor in sent.tensors.items() if layer not in gone})


def _kfac(sent: Statistic) -> KFAC:
    assert isinstance(sent, KFAC)
    factors, pairs = sent.factors, pairs_of(sent.factors)
    joined = {one: Kronecker(factors[one].inputs, factors[other].outputs) for one, other in pairs.items()}
    return KFAC({name: joined.get(name, one) for name, one in factors.items() if name not in pairs.values()})


_VIEWS: Mapping[type[Statistic], Callable[[Statistic], Statistic]] = {Weights: _weights, Gram: _gram, KFAC: _kfac}
