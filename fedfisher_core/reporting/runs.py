"""The runs that MLflow gets, as data."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

SUMMARY = "-summary"
"""Suffix of the name of the MLflow experiment with the summary runs."""


@dataclass(frozen=True)
class Dataset:
    """A data set that a run was made with.

    Args:
        source: where they come from, such as a folder or an address.
    """

    name: str
    digest: str
    source: str


@dataclass(frozen=True)
class Network:
    """The global network of a run, which MLflow keeps for others to load and to serve.

    Args:
        name: of MLflow's model; all networks of a benchmark share it.
        artifact: key of the network in the store; networks of one key are the same.
        load: returns the network, and examples of what it takes.
        is_best: whether MLflow registers it as the best of its benchmark.
    """

    name: str
    artifact: str
    load: "Callable[[], tuple[nn.Module, Tensor]]"
    tags: Mapping[str, str]
    is_best: bool

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{key}={value}" for key, value in self.tags.items())])


@dataclass(frozen=True)
class Record:
    """One MLflow run.

    Args:
        params: what it was run with; they identify the run within its experiment.
        drawn_from: digests of what the figures show.
        draw: makes figures or other files, by name; called only if the run is written.
        folder: where MLflow keeps these files.
        series: metrics over a quantity: by name, values by MLflow's step.
        settings: further parameters, in which runs of the same identity may differ.
        page: of the report, which MLflow keeps as report/index.html; None where other runs hold it.
        network: its global network, if MLflow is to keep it.
    """

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    drawn_from: tuple[str, ...] = ()
    draw: Callable[[], Mapping[str, bytes]] = dict
    folder: str = "figures"
    series: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    page: Path | None = None
    network: Network | None = None
    dataset: Dataset | None = None

    @property
    def identity(self) -> str:
        """Digest of what identifies the run."""
        return digest(self.params)

    @property
    def content(self) -> str:
        """Digest of all that the run holds."""
        held = [self.name, self.params, self.metrics, self.tags, self.drawn_from, self.settings]
        held += [] if self.network is None else [self.network.name, self.network.artifact, str(self.network.is_best)]
        held += [] if self.dataset is None else [asdict(self.dataset)]
        return digest([*held, self.series] if self.series else held)


@dataclass(frozen=True)
class Runs:
    """All runs of an experiment.

    Args:
        single: one for each thing that was measured.
        summary: one for each group of them; MLflow keeps these in an experiment apart.
    """

    single: Sequence[Record]
    summary: Sequence[Record]


def with_page(runs: Runs, page: Path, content: str) -> Runs:
    """Let the summary runs hold the page of the report as well, or all runs where there is no summary run."""

    def holding(records: Sequence[Record]) -> list[Record]:
        return [replace(one, page=page, drawn_from=(*one.drawn_from, content)) for one in records]

    return replace(runs, summary=holding(runs.summary)) if runs.summary else replace(runs, single=holding(runs.single))


def as_parameters(settings: Mapping[str, Any], *, within: str = "", taken: Collection[str] = ()) -> dict[str, str]:
    """Write each setting as a separate parameter; nested settings are named by their path, with dots.

    A setting with the field `name`, such as a solver, is written as its name, and its other fields below it.

    Args:
        within: prefix of names that are taken, followed by a dot.
        taken: names that mean something else.
    """
    found: dict[str, str] = {}
    for name, value in settings.items():
        key = f"{within}.{name}" if name in taken else name
        if isinstance(value, Mapping) and value:
            if "name" in value:
                found[key] = _as_text(value["name"])
            nested = as_parameters({one: own for one, own in value.items() if one != "name"})
            found |= {f"{key}.{path}": text for path, text in nested.items()}
        else:
            found[key] = _as_text(value)
    return found


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def digest(value: object) -> str:
    """Digest of anything that JSON can write, 24 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dict).encode()).hexdigest()[:24]
