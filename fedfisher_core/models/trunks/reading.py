"""Reading files of weights from other sources, without running code that such a file may hold."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import InputError, in_one_line, shown

_SHOWN = 200


def read_weights_file(path: Path, setting: str) -> Mapping[str, Tensor]:
    """Read named tensors to the CPU.

    Args:
        path: a file of safetensors, or one that `torch.save` wrote.
        setting: names the file in messages.

    Raises:
        InputError: it can't be read, or holds anything else.
    """
    try:
        read = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Torch's message advises to run the code in the file.
        raise InputError(f"{setting} holds more than tensors, or is cut; allowed: tensors by name") from error
    except SafetensorError as error:
        raise InputError(f"{setting} can't be read: {in_one_line(error)}") from error
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
        raise InputError(f"{setting} can't be read: {said}; allowed: what torch.save or safetensors wrote") from error
    if not isinstance(read, dict):
        raise InputError(f"{setting} holds a {type(read).__name__}; allowed: a mapping of names to tensors")
    for name, tensor in read.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{setting} has {shown(name)}, a {type(tensor).__name__}; allowed: tensors by name")
        if not isinstance(name, str):
            raise InputError(f"{setting} has a tensor under {shown(name)}; allowed: names that are text")
        if tensor.is_meta:
            raise InputError(f"{setting} has {name!r} on the device 'meta', without its numbers; allowed: with them")
        # Checked before any shape is read, because a nested tensor has none.
        if tensor.layout != torch.strided or tensor.is_nested:
            raise InputError(
                f"{setting} has {name!r} as {tensor.dtype}, {_layout(tensor)}; allowed: dense real numbers"
            )
    return read


def require_numbers(name: str, tensor: Tensor, setting: str) -> Tensor:
    """Copy a tensor that can be a weight, in single precision.

    Args:
        setting: names the tensor's file in messages.

    Raises:
        InputError: it is complex, quantised or of integers, or a number is not finite in single precision.
    """
    if not tensor.is_floating_point():
        raise InputError(f"{setting} has {name!r} as {tensor.dtype}, {_layout(tensor)}; allowed: dense real numbers")
    made = tensor.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
    if not is_finite(made):
        raise InputError(f"{setting} has {name!r} with numbers that are not finite; allowed: finite ones")
    return made


def _layout(tensor: Tensor) -> str:
    return "nested" if tensor.is_nested else str(tensor.layout)
