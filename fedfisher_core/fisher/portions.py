"""How much a pass takes at a time: on a processor what its cache holds, on a GPU what the memory limit allows."""

from dataclasses import dataclass

import torch

WORKSPACE = 8 * 2**20
"""Bytes of patches and per-example gradients that a layer holds at a time on a processor, about what a cache holds."""

_OUTPUTS = 6 * 2**20


@dataclass(frozen=True)
class Portions:
    """Most bytes of what a pass holds at a time.

    Args:
        outputs: of one layer's outputs in a chunk of examples.
        workspace: of the patches and per-example gradients of one layer.
    """

    outputs: int
    workspace: int

    @classmethod
    def on(cls, device: torch.device, *, memory: int) -> "Portions":
        """What suits a device.

        With more than a cache holds, a processor waits for its memory. A GPU waits for the next kernel instead, so that
        few kernels over many examples are fast.

        Args:
            device: the network's.
            memory: bytes that are free for them.
        """
        if device.type == "cpu":
            return cls(_OUTPUTS, WORKSPACE)
        return cls(memory, memory // 4)
