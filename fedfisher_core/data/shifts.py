"""How each client of a federation sees its examples: the levels of a shift, and what they make of images and labels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfisher_core.data.image_shifts import add_noise, blur, flatten_contrast, rotate
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Images, Layout
from fedfisher_core.seeds import Stream, numpy_generator, torch_generator
from fedfisher_core.settings import Cell, Shift, ShiftKind

_TOGETHER = 1024
"""Images that are shifted at a time, which bounds the working memory."""


@dataclass(frozen=True)
class View:
    """How one client sees examples.

    Args:
        kind: of the shift.
        level: 0 for as they are. Else an angle in degrees (rotation), a standard deviation in pixels (blur), the
            fraction of contrast that is lost, a standard deviation where white is 1 (noise), or 1 for other labels.
        names: what the client calls each class; empty for what it is.
        noise: seed and branch of the noise's generator.
    """

    kind: ShiftKind
    level: float
    names: tuple[int, ...]
    noise: tuple[int, int]

    @property
    def plain(self) -> bool:
        """Whether the client sees everything as it is."""
        return self.level == 0

    def described(self) -> dict[str, Any]:
        """What sets the view apart beside the seed and the client, as JSON has it; nothing for a plain one."""
        if self.plain:
            return {}
        return {"view": {"kind": self.kind, "level": self.level, **({"names": list(self.names)} if self.names else {})}}

    def images(self, pixels: Tensor) -> Tensor:
        """Shift images.

        Args:
            pixels: from 0 to 1, shape (images, channels, height, width), on the CPU.

        Returns:
            What the client sees; the same tensor where that is what there is.
        """
        if self.plain or self.kind == "labels":
            return pixels
        generator = torch_generator(self.noise[0], Stream.SHIFT, self.noise[1])
        return torch.cat([self._shifted(part, generator) for part in pixels.split(_TOGETHER)])

    def _shifted(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        match self.kind:
            case "rotation":
                return rotate(pixels, self.level)
            case "blur":
                return blur(pixels, self.level)
            case "contrast":
                return flatten_contrast(pixels, self.level)
            case _:
                return add_noise(pixels, self.level, generator)

    def labels(self, labels: Tensor) -> Tensor:
        """Name classes as the client does.

        Args:
            labels: the true ones, int64, shape (examples,).

        Returns:
            The client's.
        """
        return torch.tensor(self.names)[labels] if self.names else labels


@dataclass(frozen=True)
class Shifts:
    """How all clients of a federation see their examples.

    Args:
        kind: of the shift.
        seed: of the federation.
        levels: one a client; see `View`.
        names: what the clients of level 1 call each class, where labels are exchanged.
    """

    kind: ShiftKind
    seed: int
    levels: tuple[float, ...]
    names: tuple[int, ...] = ()

    def of(self, client: int, *, test: bool = False) -> View:
        """Take one client's view.

        Args:
            client: its number.
            test: whether of the test images, whose noise is another than that of the training images.
        """
        names = self.names if self.levels[client] else ()
        return View(self.kind, self.levels[client], names, (self.seed, 1 + 2 * client + test))


def draw_shifts(cell: Cell, classes: int) -> Shifts | None:
    """Decide how each client sees its examples.

    Client i of M has the i-th of M levels, evenly spread over [-s, s] for rotations and over [0, s] for other shifts of
    images. Of labels, s M clients (rounded) that are drawn at random call classes by the names of others: all of them,
    or as many as the shift says, drawn at random, change names in one random cycle.

    Args:
        cell: the shift with its strength s, the number of clients M, and the seed.
        classes: number of classes.

    Returns:
        The views; None without a shift.

    Raises:
        InputError: there are too few clients or classes for a shift.
    """
    shift, count = cell.shift, cell.clients
    if not shift:
        return None
    _require_clients(shift, count)
    if shift.kind != "labels":
        # Exactly 0 amid the angles of an odd number of clients.
        places = [2 * i / (count - 1) - 1 if shift.kind == "rotation" else i / (count - 1) for i in range(count)]
        return Shifts(shift.kind, cell.seed, tuple(shift.strength * place for place in places))
    rng = numpy_generator(cell.seed, Stream.SHIFT)
    cycle, names = rng.permutation(classes)[: shift.classes], np.arange(classes)
    names[cycle] = np.roll(cycle, -1)
    changed = np.zeros(count)
    changed[rng.permutation(count)[: _changed(shift, count)]] = 1
    return Shifts(shift.kind, cell.seed, tuple(changed.tolist()), tuple(names.tolist()))


def require_shift(shift: Shift, dataset: str, layout: Layout, classes: int, clients: int) -> None:
    """Refuse a shift that the data or the number of clients leaves no room for.

    Args:
        shift: the shift.
        dataset: name of the data set.
        layout: of its examples.
        classes: number of classes.
        clients: number of clients.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if not shift:
        return
    if shift.kind != "labels" and not isinstance(layout, Images):
        raise InputError(f"partition.shift={shift}: {dataset} has {layout}, not images; allowed: none, labels")
    if shift.kind == "labels" and classes < 2:
        raise InputError(f"partition.shift={shift}: {dataset} has {classes} class; allowed: with 2 classes or more")
    if shift.classes is not None and shift.classes > classes:
        raise InputError(f"partition.shift={shift}: {dataset} has {classes} classes; allowed: 2 to {classes} of them")
    _require_clients(shift, clients)


def _require_clients(shift: Shift, clients: int) -> None:
    if shift.kind != "labels" and clients < 2:
        raise InputError(f"partition.clients={clients} with partition.shift={shift}; allowed: at least 2")
    if shift.kind == "labels" and not _changed(shift, clients):
        raise InputError(
            f"partition.shift={shift} changes none of partition.clients={clients}; allowed: a strength of at least "
            f"{0.5 / clients:g}"
        )


def _changed(shift: Shift, clients: int) -> int:
    """How many clients have other labels: the nearest whole number, and the larger of two that are as near."""
    return int(shift.strength * clients + 0.5)
