"""The names of a network's matrices: a layer's own, or one for each group of rows that has a matrix of its own."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_GROUP = re.compile(r"(.*)\[(\d+) of (\d+)\]", re.DOTALL)


@dataclass(frozen=True)
class MatrixName:
    """Which rows of which layer make a matrix.

    Args:
        layer: the layer's qualified name.
        group: which of its groups of rows, counted from 1.
        groups: how many groups of equally many rows there are.
    """

    layer: str
    group: int = 1
    groups: int = 1

    @classmethod
    def of(cls, text: str) -> Self:
        """Undo `str`."""
        found = _GROUP.fullmatch(text)
        return cls(text) if found is None else cls(found[1], int(found[2]), int(found[3]))

    def __str__(self) -> str:
        """The layer's name, and behind it the group where there are several."""
        return self.layer if self.groups == 1 else f"{self.layer}[{self.group} of {self.groups}]"

    def rows(self, tensor: Tensor) -> Tensor:
        """Cut the matrix's rows from a tensor of all rows of the layer, in the first dimension."""
        count = len(tensor) // self.groups
        return tensor[(self.group - 1) * count : self.group * count]


def matrix_names(layer: str, groups: int) -> list[str]:
    """Name all matrices of a layer.

    Args:
        layer: the layer's qualified name.
        groups: how many groups of rows have a matrix of their own.

    Returns:
        One name a group, in the order of their rows.
    """
    return [str(MatrixName(layer, group, groups)) for group in range(1, groups + 1)]


def join(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Put together the parameters of which several matrices hold rows.

    Args:
        parts: named parameters, or some of their rows; those of one parameter in the order of its rows.

    Returns:
        The whole parameters.
    """
    rows: dict[str, list[Tensor]] = defaultdict(list)
    for part in parts:
        for name, tensor in part.items():
            rows[name].append(tensor)
    return {name: tensors[0] if len(tensors) == 1 else torch.cat(tensors) for name, tensors in rows.items()}
