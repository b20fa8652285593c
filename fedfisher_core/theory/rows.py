"""The results of the two-layer experiment as tidy rows, and their files results.json and results.csv."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from fedfisher_core.configuration import TWO_LAYER
from fedfisher_core.reporting.rows import read_checked, write_text
from fedfisher_core.theory.experiment import Errors, SeedErrors, TwoLayerSettings

CurveName = Literal["width", "local_steps"]
METHODS = tuple(field.name for field in fields(Errors))


@dataclass(frozen=True)
class TwoLayerRow:
    """The training error of one kind of model at one point of a curve, with one seed.

    Args:
        benchmark: name of the benchmark.
        experiment: "two_layer", which tells these rows from those of ordinary benchmarks.
        curve: what varies along the curve.
        width: number of hidden units.
        local_steps: number of local steps of each client.
        seed: seed of the row.
        method: "fedfisher", "fedavg", or "local" for the clients' own models on their own data.
        training_error: mean of (z - y)^2 / 2.
        artifact: key of the artifact that the number was read from.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    benchmark: str
    experiment: Literal["two_layer"]
    curve: CurveName
    width: int
    local_steps: int
    seed: int
    method: str
    training_error: float
    artifact: str

    @property
    def value(self) -> int:
        """What the curve is drawn over: the width or the number of local steps."""
        return self.width if self.curve == "width" else self.local_steps


_ROWS = TypeAdapter(list[TwoLayerRow])


def make_rows(
    benchmark: str, settings: TwoLayerSettings, seed: int, measured: SeedErrors, artifact: str
) -> list[TwoLayerRow]:
    """Lay out the errors of one seed.

    Args:
        benchmark: its name.
        settings: what was measured.
        seed: the seed.
        measured: its errors.
        artifact: key of the artifact that holds them.

    Returns:
        A row for every point of both curves and every kind of model.
    """
    return [
        TwoLayerRow(
            benchmark=benchmark,
            experiment="two_layer",
            curve=curve,
            width=width,
            local_steps=local_steps,
            seed=seed,
            method=method,
            training_error=getattr(errors, method),
            artifact=artifact,
        )
        for curve, width, local_steps, errors in _points(settings, measured)
        for method in METHODS
    ]


def _points(settings: TwoLayerSettings, measured: SeedErrors) -> Iterator[tuple[CurveName, int, int, Errors]]:
    for width, errors in zip(settings.widths, measured.widths, strict=True):
        yield "width", width, settings.steps_of_widths, errors
    for steps, errors in zip(settings.steps, measured.steps, strict=True):
        yield "local_steps", settings.width_of_steps, steps, errors


def write_rows(rows: Sequence[TwoLayerRow], folder: Path) -> None:
    """Write results.json (a list with one row a line) and results.csv, each replaced in one step.

    Args:
        rows: the rows.
        folder: where to; made if missing.
    """
    lines = ",\n".join("  " + json.dumps(asdict(row), allow_nan=False) for row in rows)
    write_text(folder / "results.json", f"[\n{lines}\n]\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(TwoLayerRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, rows))
    write_text(folder / "results.csv", text.getvalue())


def read_rows(path: Path) -> list[TwoLayerRow]:
    """Read the rows of a results.json.

    Args:
        path: the file.

    Returns:
        The rows, in the file's order.

    Raises:
        InputError: the file is missing, or is no list of rows with exactly the fields of `TwoLayerRow`.
    """
    return read_checked(path, _ROWS, "rows of the two-layer experiment")


def holds_two_layer(path: Path) -> bool:
    """Say whether a results.json is one of this experiment, whatever else may be wrong with it.

    Args:
        path: the file.
    """
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(rows, list) and any(isinstance(row, dict) and row.get("experiment") == TWO_LAYER for row in rows)
