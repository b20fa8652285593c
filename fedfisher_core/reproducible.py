"""Arithmetic on a GPU that ends in the same bits whenever it is repeated."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

# Objects of torch, their attributes, and what these must be.
_CHOSEN = (
    (torch.backends.cudnn.conv, "fp32_precision", "ieee"),  # type: ignore[attr-defined]
    (torch.backends.cudnn.rnn, "fp32_precision", "ieee"),
    (torch.backends.cuda.matmul, "fp32_precision", "ieee"),
    # Whoever reads memory before writing to it has a defect, which numbers to find it by would not mend.
    (torch.utils.deterministic, "fill_uninitialized_memory", False),
)
_lock = threading.Lock()
_inside = 0
_restored = ExitStack()


@contextmanager
def reproducible_gpu() -> Iterator[None]:
    """Have a GPU add in a fixed order, and keep all digits of single precision, until the block ends.

    Left to itself, torch adds in whatever order threads arrive, so that a result made anew would not be the one of the
    store; and it rounds what enters a convolution to ten bits (TF32), which Fishers inherit.

    What it sets holds for the whole process; on the processor, nothing rounds otherwise.

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
            # Threads of one process may share a GPU, and the last of them leaves it as it was.
            if _inside == 0:
                _restored.close()


def _settle() -> None:
    # Read by cuBLAS when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    fixed, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    _restored.callback(torch.use_deterministic_algorithms, fixed, warn_only=warns)
    torch.use_deterministic_algorithms(True)
    for place, name, value in _CHOSEN:
        _restored.callback(setattr, place, name, getattr(place, name))
        setattr(place, name, value)
