"""Networks and examples that a command line names."""

import importlib
import os
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images, Layout, Vectors
from fedfisher_core.engine.errors import InputError, in_one_line
from fedfisher_core.models.spec import ModelSpec, models


def build(builder: str, inputs: Layout | None, classes: int | None, names: Collection[str]) -> nn.Module:
    """Build a network, whose weights do not matter.

    Args:
        builder: a registered name, or package.module:function of a function without arguments, which may be in the
            working directory.
        inputs: layout of an example, for a registered network; None where a function is named.
        classes: number of outputs, for a registered network.
        names: of its weights; they show whether a registered network has biases.

    Raises:
        InputError: it can't be built.
    """
    if ":" in builder:
        return _call(builder)
    models.get(builder)
    if inputs is None or classes is None:
        raise InputError(f"--network={builder} is of any number of classes; allowed: with --classes=NUMBER")
    spec = ModelSpec(builder, inputs, classes)
    if spec.shapes().keys() != set(names):
        spec = ModelSpec(builder, inputs, classes, bias=True)
    return spec.load({name: torch.zeros(shape) for name, shape in spec.shapes().items()})


def _call(builder: str) -> nn.Module:
    module, _, function = builder.partition(":")
    where = f"--network={builder}"
    sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module), function)()
    # A builder may fail in any way, even by an exit.
    except (Exception, SystemExit) as error:
        raise InputError(f"{where} can't be called: {in_one_line(error)}") from error
    finally:
        sys.path.remove(os.getcwd())
    if not isinstance(made, nn.Module):
        raise InputError(f"{where} returns {type(made).__name__}; allowed: a torch.nn.Module")
    return made


def example_files(folder: Path) -> tuple[Path, Path]:
    """Return the files of inputs and of labels in a folder of examples."""
    return folder / "inputs.npy", folder / "labels.npy"


def read_examples(folder: Path) -> tuple[Tensor, Tensor]:
    """Read inputs and labels as a network takes them.

    Args:
        folder: has inputs.npy (float32, or int64 for tokens) and labels.npy (integers).

    Raises:
        InputError: a file is missing or holds anything else.
    """
    inputs, labels = (_array(path) for path in example_files(folder))
    return inputs, labels


def layout_of_examples(inputs: Tensor) -> Layout:
    """Return the layout of a registered network's examples, shape (examples, ...): images or rows of numbers."""
    match (inputs.dtype, *inputs.shape[1:]):
        case (torch.float32, channels, height, width):
            return Images(channels, height, width)
        case (torch.float32, features):
            return Vectors(features)
    raise InputError(
        f"inputs.npy has shape {tuple(inputs.shape)} and type {inputs.dtype}; allowed with the name of a network: "
        "images or rows of numbers in float32; others with --network=package.module:function"
    )


def _array(path: Path) -> Tensor:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; allowed: a folder with inputs.npy and labels.npy")
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise InputError(f"{path} can't be read: {in_one_line(error)}") from error
