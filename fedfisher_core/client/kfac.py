"""The Kronecker factors of the Fisher information at the client's model."""

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Size

from fedfisher_core.client.statistic import Local, ServerView, Statistic
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire import Kind


@dataclass(frozen=True)
class KFAC(Statistic):
    """A_l and G_l of every layer l (FedFisher, section 4); sums of products do not factor, so each client's own."""

    name: ClassVar[str] = "kfac"
    server_view: ClassVar[ServerView] = ServerView.EACH
    kind: ClassVar[Kind] = Kind.SYMMETRIC
    approximation: ClassVar[Approximation] = Approximation.KFAC
    version: ClassVar[int] = 2

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Average the factors over the examples."""
        blocks = local.fisher.kfac
        assert blocks is not None
        tensors = {}
        for layer, block in blocks.items():
            tensors[f"{layer}.inputs"] = block.inputs
            tensors[f"{layer}.outputs"] = block.outputs
        return cls(tensors)

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the two square factors of every layer."""
        shapes = {}
        for name, layer in fisher_layers(spec.skeleton()).items():
            inputs = layer.weight[0].numel() + (layer.bias is not None)
            shapes[f"{name}.inputs"] = Size([inputs, inputs])
            shapes[f"{name}.outputs"] = Size([layer.weight.shape[0]] * 2)
        return shapes

    def blocks(self) -> dict[str, Kronecker]:
        """Pair the factors of every layer.

        Returns:
            The Fisher block by layer.
        """
        layers = [key.removesuffix(".inputs") for key in self.tensors if key.endswith(".inputs")]
        return {
            layer: Kronecker(inputs=self.tensors[f"{layer}.inputs"], outputs=self.tensors[f"{layer}.outputs"])
            for layer in layers
        }
