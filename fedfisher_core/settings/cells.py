"""The points of a benchmark, and restrictions to some of them."""

from typing import Annotated

from pydantic import BeforeValidator, NonNegativeInt, PositiveInt

from fedfisher_core.settings.base import Strict, as_tuple
from fedfisher_core.settings.choices import AVERAGE, PLAIN
from fedfisher_core.settings.clients import PartitionScheme
from fedfisher_core.settings.shifts import NO_SHIFT, Shift


class Cell(Strict):
    """One point of a benchmark: everything else is the same for all points."""

    dataset: str
    model: str
    scheme: PartitionScheme
    alpha: float | None
    clients: PositiveInt
    shift: Shift = NO_SHIFT
    seed: NonNegativeInt
    objective: str = PLAIN
    server_optimiser: str = AVERAGE

    @property
    def setting(self) -> str:
        """Short name of all but the seed."""
        skew = "" if self.alpha is None else f"alpha={self.alpha:g} "
        shift = f"{self.shift.kind}={self.shift.strength:g} " if self.shift else ""
        goal = "" if self.objective == PLAIN else f" objective={self.objective}"
        server = "" if self.server_optimiser == AVERAGE else f" server_optimiser={self.server_optimiser}"
        return f"{self.dataset} {self.model} {self.scheme} {skew}{shift}clients={self.clients}{goal}{server}"

    @property
    def label(self) -> str:
        """Short name for run names and figures."""
        return f"{self.setting} seed={self.seed}"


class Scope(Strict):
    """Some of the points of a benchmark; a coordinate that is not given is free."""

    dataset: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    model: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    scheme: Annotated[tuple[PartitionScheme, ...] | None, BeforeValidator(as_tuple)] = None
    alpha: Annotated[tuple[float, ...] | None, BeforeValidator(as_tuple)] = None
    clients: Annotated[tuple[int, ...] | None, BeforeValidator(as_tuple)] = None
    shift: Annotated[tuple[Shift, ...] | None, BeforeValidator(as_tuple)] = None
    seed: Annotated[tuple[int, ...] | None, BeforeValidator(as_tuple)] = None
    objective: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    server_optimiser: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None

    def admits(self, cell: Cell) -> bool:
        """Say whether a point of the benchmark is within."""
        return all(values is None or getattr(cell, key) in values for key, values in self)
