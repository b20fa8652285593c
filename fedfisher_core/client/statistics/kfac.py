"""The Kronecker factors of the Fisher information at the client's model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size, Tensor, nn

from fedfisher_core.client.local import Local, Releasing
from fedfisher_core.client.statistics.statistic import ServerView, Statistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import SYMMETRIC
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import groups_of, kfac_layers, matrix_names, own_parameters
from fedfisher_core.models.spec import ModelSpec


@dataclass(frozen=True)
class KFAC(Statistic):
    """A_l and G_l of every layer l (FedFisher, section 4), of each client, because sums of products do not factor.

    Args:
        factors: by matrix (see `matrix_names`), in the order in which they are sent.
    """

    factors: dict[str, Kronecker]

    name: ClassVar[str] = "kfac"
    server_view: ClassVar[ServerView] = ServerView.EACH
    structure: ClassVar[Structure] = SYMMETRIC
    approximation: ClassVar[Approximation] = Approximation.KFAC
    zero_filled: ClassVar[bool] = True
    mechanisms: ClassVar[int | None] = 1

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Average the factors over the examples."""
        factors = local.fisher.kfac
        assert factors is not None
        return cls(factors)

    @classmethod
    def release(cls, local: Releasing) -> Self:
        """Take the client's noisy Fisher."""
        return cls.compute(local)

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the two factors of every layer, or of each of its groups; that of tokens is a diagonal."""
        network = spec.skeleton()
        shapes = {}
        for name, layer in kfac_layers(network).items():
            if isinstance(layer, nn.Embedding):
                shapes[f"{name}.inputs"] = Size([layer.num_embeddings])
                shapes[f"{name}.outputs"] = Size([layer.embedding_dim] * 2)
                continue
            inputs = layer.weight[0].numel() + len(list(layer.parameters())) - 1
            groups = groups_of(layer)
            for matrix in matrix_names(name, groups):
                shapes[f"{matrix}.inputs"] = Size([inputs, inputs])
                shapes[f"{matrix}.outputs"] = Size([layer.weight.shape[0] // groups] * 2)
        for name, parameter in own_parameters(network).items():
            shapes[f"{name}.inputs"] = Size([parameter.numel()])
            shapes[f"{name}.outputs"] = Size([1, 1])
        return shapes

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Pair the factors of every matrix by their names."""
        matrices = [name.removesuffix(".inputs") for name in tensors if name.endswith(".inputs")]
        return cls({one: Kronecker(tensors[f"{one}.inputs"], tensors[f"{one}.outputs"]) for one in matrices})

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The factors, by matrix and side."""
        named = {}
        for matrix, block in self.factors.items():
            named[f"{matrix}.inputs"] = block.inputs
            named[f"{matrix}.outputs"] = block.outputs
        return named
