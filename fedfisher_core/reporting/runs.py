"""The runs that MLflow gets, before MLflow gets them."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

SUMMARY = "-summary"
"""What the name of the experiment ends in that holds the runs that sum others up."""


@dataclass(frozen=True)
class Record:
    """One MLflow run.

    Args:
        name: what the UI calls it.
        params: what it was run with; they identify the run within its experiment.
        metrics: what came out.
        tags: what else is worth reading.
        drawn_from: digests of what the figures show.
        draw: makes the figures or other files, by name; called only if the run is written.
        folder: where MLflow keeps these files.
        series: metrics that are drawn over a quantity: by name, values by MLflow's step.
    """

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    drawn_from: tuple[str, ...] = ()
    draw: Callable[[], Mapping[str, bytes]] = dict
    folder: str = "figures"
    series: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Digest of what identifies the run."""
        return digest(self.params)

    @property
    def content(self) -> str:
        """Digest of everything that the run holds."""
        held = [self.name, self.params, self.metrics, self.tags, self.drawn_from]
        return digest([*held, self.series] if self.series else held)


@dataclass(frozen=True)
class Runs:
    """All runs of an experiment.

    Args:
        single: one for each thing that was measured.
        summary: those that sum them up; MLflow keeps them in an experiment of their own.
    """

    single: Sequence[Record]
    summary: Sequence[Record]


def digest(value: object) -> str:
    """Digest of anything that JSON can write, 24 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()[:24]
