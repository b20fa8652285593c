"""Tensors as they are sent uncompressed: 32 bits a number."""

from collections.abc import Mapping

from torch import Tensor

from fedfisher_core.wire.codec import TensorSpec
from fedfisher_core.wire.elementwise import Float32
from fedfisher_core.wire.payload import Schema, Section


def uncompressed(name: str, tensors: Mapping[str, Tensor]) -> Section:
    """Make the section of a payload that carries tensors as they are.

    Args:
        name: of the section.
        tensors: by name.

    Returns:
        The section.
    """
    return Section(name, tuple(TensorSpec(key, tuple(one.shape)) for key, one in tensors.items()), Float32())


def bits_of(tensors: Mapping[str, Tensor]) -> int:
    """Count the payload of tensors alone.

    Args:
        tensors: by name.

    Returns:
        Bits; none for no tensors.
    """
    return Schema((uncompressed("tensors", tensors),)).bits if tensors else 0
