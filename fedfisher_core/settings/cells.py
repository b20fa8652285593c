"""The points of a benchmark, and restrictions to some of them."""

from pydantic import NonNegativeInt, PositiveInt

from fedfisher_core.settings.base import Several, Strict
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

    dataset: Several[str] | None = None
    model: Several[str] | None = None
    scheme: Several[PartitionScheme] | None = None
    alpha: Several[float] | None = None
    clients: Several[int] | None = None
    shift: Several[Shift] | None = None
    seed: Several[int] | None = None
    objective: Several[str] | None = None
    server_optimiser: Several[str] | None = None

    def admits(self, cell: Cell) -> bool:
        """Say whether a point of the benchmark is within."""
        return all(values is None or getattr(cell, key) in values for key, values in self)
