"""MiniLM-L6 (Wang et al. 2020), and a network with LoRA adapters (Hu et al. 2022) in its frozen encoder."""

import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec, model

if TYPE_CHECKING:
    from fedfisher_core.models.trunks.trunk import TextTrunk

Adapters = Mapping[str, Callable[[Tensor], Tensor]]
"""By the name of a linear layer, what is added to its outputs."""

WIDTH, HIDDEN, LAYERS, HEADS = 384, 1536, 6, 12
VOCABULARY, POSITIONS, PADDING = 30_522, 512, 0
_EPS = 1e-12

TARGETS = MappingProxyType(
    {
        "query": ("attention.self.query", WIDTH, WIDTH),
        "key": ("attention.self.key", WIDTH, WIDTH),
        "value": ("attention.self.value", WIDTH, WIDTH),
        "attention_output": ("attention.output.dense", WIDTH, WIDTH),
        "intermediate": ("intermediate.dense", WIDTH, HIDDEN),
        "output": ("output.dense", HIDDEN, WIDTH),
    }
)
"""Linear layers of a block that may have an adapter: their names, inputs and outputs."""


class Encoder(nn.Module):
    """Tokens to the mean of the last layer's outputs over positions without padding; names are those of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(VOCABULARY, WIDTH),
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

        places = torch.arange(tokens.shape[1], device=tokens.device)
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


class _ZeroLinear(nn.Linear):
    """Starts at zero, so that an adapter changes nothing before training."""

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.weight)


@model("minilm/lora")
class AdaptedMiniLM(nn.Module):
    """A linear layer on MiniLM's features, and LoRA adapters in MiniLM; clients train and send these alone."""

    def __init__(self, spec: ModelSpec) -> None:
        _trunk().require(spec.inputs)
        super().__init__()
        lora, (rank,) = spec.lora, spec.widths_or((spec.lora.rank,))
        if unknown := [one for one in lora.targets if one not in TARGETS]:
            raise InputError(f"model {spec.name!r}: targets {unknown}; allowed: {', '.join(TARGETS)}")
        # The global network of some methods has another rank, and the same scale.
        self.scale = lora.alpha / lora.rank
        self.places = {
            f"{number}_{target}": f"encoder.layer.{number}.{TARGETS[target][0]}"
            for number in range(LAYERS)
            for target in lora.targets
        }
        shapes = {key: TARGETS[key.partition("_")[2]][1:] for key in self.places}
        self.rank = rank
        self.given = {key: given for key, (given, _) in shapes.items()}
        if lora.trained == "both":
            self.lora_A = nn.ModuleDict({key: nn.Linear(given, rank, bias=False) for key, given in self.given.items()})
        self.lora_B = nn.ModuleDict({key: _ZeroLinear(rank, made, bias=False) for key, (_, made) in shapes.items()})
        self.head = nn.Linear(WIDTH, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of tokens of shape (batch, length)."""
        adapters = {place: self._adapter(key) for key, place in self.places.items()}
        return self.head(_frozen(inputs.device)(inputs, adapters))

    def _adapter(self, key: str) -> Callable[[Tensor], Tensor]:
        def adapt(inputs: Tensor) -> Tensor:
            if hasattr(self, "lora_A"):
                return self.scale * self.lora_B[key](self.lora_A[key](inputs))
            return self.scale * self.lora_B[key](inputs @ _fixed(key, self.given[key], self.rank, inputs.device).T)

        return adapt


@lru_cache(maxsize=256)
def _fixed(key: str, given: int, rank: int, device: torch.device) -> Tensor:
    """The factor A that all clients have where they train B alone (Sun et al. 2024), drawn as torch draws a layer's."""
    with torch.inference_mode(False), torch.no_grad():
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        made = torch.empty(rank, given, device="cpu")
        return nn.init.kaiming_uniform_(made, a=5**0.5, generator=generator).to(device)


@lru_cache(maxsize=2)
def _frozen(device: torch.device) -> nn.Module:
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
