"""Reading files of weights that others wrote; nothing that such a file may hold is run."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedfisher_core.errors import InputError
from fedfisher_core.finite import is_finite

_SHOWN = 200


def read_weights_file(path: Path, setting: str) -> Mapping[str, Tensor]:
    """Read named tensors.

    Args:
        path: a file of safetensors, or one that `torch.save` wrote.
        setting: what names it, for messages.

    Returns:
        The tensors by name, on the CPU.

    Raises:
        InputError: it can't be read, or holds anything else.
    """
    try:
        read = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Torch advises to run what the file holds.
        raise InputError(f"{setting} holds more than tensors, or is cut; allowed: tensors by name") from error
    except SafetensorError as error:
        raise InputError(f"{setting} can't be read: {error}") from error
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
        raise InputError(f"{setting} can't be read: {said}; allowed: what torch.save or safetensors wrote") from error
    if not isinstance(read, dict):
        raise InputError(f"{setting} holds a {type(read).__name__}; allowed: a mapping of names to tensors")
    for name, tensor in read.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{setting} has {name!r}, a {type(tensor).__name__}; allowed: tensors by name")
    return read


def require_numbers(name: str, tensor: Tensor, setting: str) -> Tensor:
    """Check that a tensor can be a weight.

    Args:
        name: of it.
        tensor: as it was read.
        setting: what names its file, for messages.

    Returns:
        It in single precision, in a memory of its own.

    Raises:
        InputError: it is sparse, complex or quantised, or a number is not finite in single precision.
    """
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise InputError(f"{setting} has {name!r} as {tensor.dtype}, {tensor.layout}; allowed: dense real numbers")
    made = tensor.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
    if not is_finite(made):
        raise InputError(f"{setting} has {name!r} with numbers that are not finite; allowed: finite ones")
    return made
