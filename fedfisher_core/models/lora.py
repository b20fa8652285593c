"""Networks with LoRA adapters in a frozen encoder (Hu et al. 2022); clients send adapters and a head alone."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.layers import Padding
from fedfisher_core.models.spec import ModelSpec

Adapters = Mapping[str, Callable[[Tensor], Tensor]]
"""By the name of a linear layer, what is added to its outputs."""


@dataclass(frozen=True)
class Target:
    """A linear layer of each block that may have an adapter.

    Args:
        layer: its name in the encoder, with {} for the number of the block.
    """

    layer: str
    inputs: int
    outputs: int


class _ZeroLinear(nn.Linear):
    """Starts at zero, so that an adapter changes nothing before training."""

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.weight)


class AdaptedEncoder(nn.Module, ABC):
    """A linear layer on an encoder's features, and LoRA adapters in the encoder, which no network holds.

    Args:
        targets: of the encoder, by their names in the settings.
        blocks: number of its blocks.
        features: number of its features.
        padding: the token of padding.
        base: what others call the encoder, such as its path.
    """

    def __init__(
        self, spec: ModelSpec, *, targets: Mapping[str, Target], blocks: int, features: int, padding: int, base: str
    ) -> None:
        super().__init__()
        self.base = base
        self.padding = Padding(padding)
        lora, (rank,) = spec.lora, spec.widths_or((spec.lora.rank,))
        if unknown := [one for one in lora.targets if one not in targets]:
            raise InputError(f"model {spec.name!r}: targets {unknown}; allowed: {', '.join(targets)}")
        # The global network of some methods has another rank, and the same scale.
        self.scale = lora.alpha / lora.rank
        chosen = {f"{number}_{name}": (number, targets[name]) for number in range(blocks) for name in lora.targets}
        self.places = {key: target.layer.format(number) for key, (number, target) in chosen.items()}
        self.rank = rank
        self.given = {key: target.inputs for key, (_, target) in chosen.items()}
        if lora.trained == "both":
            self.lora_A = nn.ModuleDict({key: nn.Linear(given, rank, bias=False) for key, given in self.given.items()})
        self.lora_B = nn.ModuleDict(
            {key: _ZeroLinear(rank, target.outputs, bias=False) for key, (_, target) in chosen.items()}
        )
        self.head = nn.Linear(features, spec.classes, bias=spec.bias)

    @abstractmethod
    def encode(self, tokens: Tensor, adapters: Adapters) -> Tensor:
        """Compute the encoder's features with what adapters add, shape (batch, features)."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits, shape (batch, classes), of tokens of shape (batch, length)."""
        return self.head(
            self.encode(self.padding(inputs), {place: self.adapter(key) for key, place in self.places.items()})
        )

    def adapter(self, key: str) -> Callable[[Tensor], Tensor]:
        """What is added to the outputs of one layer, as a function of its inputs."""

        def adapt(inputs: Tensor) -> Tensor:
            if hasattr(self, "lora_A"):
                return self.scale * self.lora_B[key](self.lora_A[key](inputs))
            return self.scale * self.lora_B[key](inputs @ fixed_a(key, self.given[key], self.rank, inputs.device).T)

        return adapt


@lru_cache(maxsize=256)
def fixed_a(key: str, given: int, rank: int, device: torch.device) -> Tensor:
    """The factor A that all clients have where they train B alone (Sun et al. 2024), drawn as torch draws a layer's."""
    with torch.inference_mode(False), torch.no_grad():
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        made = torch.empty(rank, given, device="cpu")
        return nn.init.kaiming_uniform_(made, a=5**0.5, generator=generator).to(device)
