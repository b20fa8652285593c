"""Checks for finite numbers, and sums on a GPU that give the same bits each time."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor


def is_finite(tensor: Tensor) -> bool:
    """Say whether all entries of a tensor of real numbers are finite; an empty tensor is finite.

    The extremes show it in one pass, without the copies of `torch.isfinite`: both are NaN as soon as any entry is.
    """
    return tensor.numel() == 0 or bool(torch.isfinite(torch.stack(tensor.detach().aminmax())).all())


# Objects of torch, their attributes, and what these must be.
_CHOSEN = (
    (torch.backends.cudnn.conv, "fp32_precision", "ieee"),  # type: ignore[attr-defined]
    (torch.backends.cudnn.rnn, "fp32_precision", "ieee"),
    (torch.backends.cuda.matmul, "fp32_precision", "ieee"),
    # Filling new memory with NaN only helps to find code that reads before it writes, and takes time.
    (torch.utils.deterministic, "fill_uninitialized_memory", False),
)
_lock = threading.Lock()
_inside = 0
_restored = ExitStack()


@contextmanager
def reproducible_gpu() -> Iterator[None]:
    """Have a GPU add in a fixed order, and keep all digits of single precision, until the block ends.

    By default torch adds in the order in which threads arrive, so a result that is made again could differ from the
    stored one. It also rounds the inputs of a convolution to ten bits (TF32), which Fishers inherit.

    The settings hold for the whole process. They change no rounding on the processor.

    Raises:
        RuntimeError: an operation of the block has no fixed order on a GPU; the message names it.
    """
    global _inside
    with _lock:
        if _inside == 0:
            _settle()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            # Threads of one process may share a GPU, so the last one restores the settings.
            if _inside == 0:
                _restored.close()


def _settle() -> None:
    # cuBLAS reads this when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    fixed, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    _restored.callback(torch.use_deterministic_algorithms, fixed, warn_only=warns)
    torch.use_deterministic_algorithms(True)
    for place, name, value in _CHOSEN:
        _restored.callback(setattr, place, name, getattr(place, name))
        setattr(place, name, value)
