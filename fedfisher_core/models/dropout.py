"""Dropout that draws from a generator it is given, so that a client's training is its own seed's alone."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Sets numbers to 0 at random in training, and scales the others up by as much; does nothing in evaluation.

    `torch.nn.Dropout` draws from the process's generator, which all clients of a process would share.

    Args:
        probability: of each number to become 0, at least 0 and below 1.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self._generator: torch.Generator | None = None

    def draw_from(self, generator: torch.Generator) -> None:
        """Choose what draws.

        Args:
            generator: on the CPU, so that all devices draw the same numbers.
        """
        self._generator = generator

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute what is left of the inputs, of their shape.

        Raises:
            RuntimeError: it is in training, and was given no generator.
        """
        if not self.training:
            return inputs
        if self._generator is None:
            raise RuntimeError("dropout in training has no generator; `draw_from` must give it one first")
        kept = torch.empty(inputs.shape, dtype=inputs.dtype).bernoulli_(1 - self.probability, generator=self._generator)
        return inputs * kept.div_(1 - self.probability).to(inputs.device)


def begin_training(network: nn.Module, generator: torch.Generator) -> None:
    """Put a network in training mode, with a generator for whatever it leaves to chance.

    Args:
        network: any; one without dropout draws nothing.
        generator: draws, on the CPU.
    """
    network.train()
    for module in network.modules():
        if isinstance(module, Dropout):
            module.draw_from(generator)
