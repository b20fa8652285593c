"""MiniLM-L6 (Wang et al. 2020), trained as a whole or with LoRA adapters (Hu et al. 2022) in its frozen encoder."""

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.lora import AdaptedEncoder, Adapters, Target
from fedfisher_core.models.spec import ModelSpec, model

if TYPE_CHECKING:
    from fedfisher_core.models.trunks.trunk import TextTrunk

WIDTH, HIDDEN, LAYERS, HEADS = 384, 1536, 6, 12
VOCABULARY, POSITIONS, PADDING = 30_522, 512, 0
_EPS = 1e-12
_BASE = "sentence-transformers/all-MiniLM-L6-v2"

TARGETS = MappingProxyType(
    {
        "query": Target("encoder.layer.{}.attention.self.query", WIDTH, WIDTH),
        "key": Target("encoder.layer.{}.attention.self.key", WIDTH, WIDTH),
        "value": Target("encoder.layer.{}.attention.self.value", WIDTH, WIDTH),
        "attention_output": Target("encoder.layer.{}.attention.output.dense", WIDTH, WIDTH),
        "intermediate": Target("encoder.layer.{}.intermediate.dense", WIDTH, HIDDEN),
        "output": Target("encoder.layer.{}.output.dense", HIDDEN, WIDTH),
    }
)
"""Linear layers of a block that may have an adapter."""


class Encoder(nn.Module):
    """Tokens to the mean of the last layer's outputs over positions without padding; names are those of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(VOCABULARY, WIDTH, padding_idx=PADDING),
                "position_embeddings": nn.Embedding(POSITIONS, WIDTH),
                "token_type_embeddings": nn.Embedding(2, WIDTH),
                "LayerNorm": nn.LayerNorm(WIDTH, eps=_EPS),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(_block() for _ in range(LAYERS))})

    def forward(self, tokens: Tensor, adapters: Adapters = MappingProxyType({})) -> Tensor:
        """Compute features, shape (batch, 384), of tokens, shape (batch, length)."""
        counted = (tokens != PADDING).float()[..., None]
        # Where a text has no token, the mean over its positions stays finite.
        hidden = (1 - counted).mT[:, None] * torch.finfo(torch.float32).min

        def layer(name: str, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.get_submodule(name)(inputs)
            adapter = adapters.get(name)
            # A position of padding has no effect on others. Without its inputs, statistics don't see it either.
            return outputs if adapter is None else outputs + adapter(inputs * counted)

        # Statistics of a whole network are taken text by text.
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        states = layer("embeddings.word_embeddings", tokens) + layer("embeddings.position_embeddings", places)
        states = states + layer("embeddings.token_type_embeddings", torch.zeros_like(tokens))
        states = layer("embeddings.LayerNorm", states)
        for number in range(LAYERS):
            block = f"encoder.layer.{number}"
            query, key, value = (
                layer(f"{block}.attention.self.{name}", states).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
            mixed = layer(f"{block}.attention.output.dense", attended.transpose(1, 2).flatten(2))
            states = layer(f"{block}.attention.output.LayerNorm", states + mixed)
            inner = functional.gelu(layer(f"{block}.intermediate.dense", states))
            states = layer(f"{block}.output.LayerNorm", states + layer(f"{block}.output.dense", inner))
        return (states * counted).sum(1) / counted.sum(1).clamp(min=1)


def _block() -> nn.ModuleDict:
    projections = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")})
    return nn.ModuleDict(
        {
            "attention": nn.ModuleDict({"self": projections, "output": _output(WIDTH)}),
            "intermediate": nn.ModuleDict({"dense": nn.Linear(WIDTH, HIDDEN)}),
            "output": _output(HIDDEN),
        }
    )


def _output(inputs: int) -> nn.ModuleDict:
    return nn.ModuleDict({"dense": nn.Linear(inputs, WIDTH), "LayerNorm": nn.LayerNorm(WIDTH, eps=_EPS)})


@model("minilm")
class WholeMiniLM(Encoder):
    """MiniLM, and a linear layer on its features; all of it is trained and sent."""

    def __init__(self, spec: ModelSpec) -> None:
        _trunk().require(spec.inputs)
        if spec.widths:
            raise InputError(
                f"model {spec.name!r}: widths={spec.widths}; those of its weights are fixed: allowed: none"
            )
        super().__init__()
        self.head = nn.Linear(WIDTH, spec.classes, bias=spec.bias)

    def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
        """Compute logits, shape (batch, classes), of tokens of shape (batch, length)."""
        return self.head(super().forward(tokens))


@model("minilm/lora")
class AdaptedMiniLM(AdaptedEncoder):
    """A linear layer on MiniLM's features, and LoRA adapters in MiniLM; clients train and send these alone."""

    def __init__(self, spec: ModelSpec) -> None:
        _trunk().require(spec.inputs)
        super().__init__(spec, targets=TARGETS, blocks=LAYERS, features=WIDTH, padding=PADDING, base=_BASE)

    def encode(self, tokens: Tensor, adapters: Adapters) -> Tensor:
        """See the base class."""
        features: Tensor = frozen_encoder(tokens.device)(tokens, adapters)
        return features


@lru_cache(maxsize=2)
def frozen_encoder(device: torch.device) -> nn.Module:
    """The encoder that all networks of a process share; no network holds it, as no client sends it."""
    from fedfisher_core.models.trunks.trunk import load_trunk

    # What is made in inference mode can't be used in training.
    with torch.inference_mode(False), torch.no_grad():
        if device.type == "meta":
            with device:
                return Encoder().eval().requires_grad_(False)
        return load_trunk(_trunk()).to(device)


def _trunk() -> "TextTrunk":
    # Imported late, because the trunk's module imports this one.
    from fedfisher_core.models.trunks.trunk import TextTrunk, trunks

    found = trunks.get("minilm")
    assert isinstance(found, TextTrunk)
    return found
