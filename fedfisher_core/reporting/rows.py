"""The result rows of a benchmark, and their files results.json and results.csv."""

import csv
import io
import json
import math
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedfisher_core.errors import InputError

T = TypeVar("T")

TIMING_FIELDS = ("client_train_seconds", "client_statistics_seconds", "server_seconds", "peak_memory_bytes")
"""The fields that measure the machine, and so differ between reruns of the same settings."""

BASELINE = "fedavg"
"""The label of the method that differences and bit ratios refer to."""


@dataclass(frozen=True)
class Row:
    """What one method reached with one seed in one setting.

    Args:
        benchmark: name of the benchmark.
        dataset: name of the data set.
        model: name of the model.
        partition: name of the scheme that splits the data over the clients.
        alpha: Dirichlet concentration; None where the partition has none.
        num_clients: number of clients.
        num_rounds: number of communication rounds.
        seed: seed of the row.
        method: label of the method.
        method_settings: the method's settings.
        uploads: what the server must see of each upload, by its name: "sum" or "each".
        accuracy: test accuracy, a fraction.
        loss: mean cross-entropy on the test set, in nats.
        worst_client_accuracy: lowest accuracy over the clients, a fraction.
        worst_class_accuracy: lowest accuracy over the classes, a fraction.
        client_train_seconds: local training, summed over the clients.
        client_statistics_seconds: seconds by statistic, summed over the clients.
        server_seconds: aggregation.
        upload_bits: bits on the wire, all clients.
        upload_bits_formula: the paper's count of the same.
        download_bits: bits from the server, all clients.
        peak_memory_bytes: working memory of the aggregation at its peak.
        uses_validation: whether the method saw the server's validation set.
        reference: whether this is no one-shot method but a bound or a baseline of another kind.
        failed_clients: clients whose upload is missing.
        artifact: key of the artifact that the numbers were read from.

    Raises:
        InputError: a measure is not finite.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    benchmark: str
    dataset: str
    model: str
    partition: str
    alpha: float | None
    num_clients: int
    num_rounds: int
    seed: int
    method: str
    method_settings: dict[str, Any]
    uploads: dict[str, str]
    accuracy: float
    loss: float
    worst_client_accuracy: float
    worst_class_accuracy: float
    client_train_seconds: float
    client_statistics_seconds: dict[str, float]
    server_seconds: float
    upload_bits: int
    upload_bits_formula: int
    download_bits: int
    peak_memory_bytes: int
    uses_validation: bool
    reference: bool
    failed_clients: list[int]
    artifact: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(
                    f"{field.name} of method {self.method!r}, seed {self.seed} is {value}; it must be finite"
                )

    @property
    def client_seconds(self) -> float:
        """Seconds of local training and of all statistics, summed over the clients."""
        return self.client_train_seconds + math.fsum(self.client_statistics_seconds.values())


_ROWS = TypeAdapter(list[Row])


def write_rows(rows: Sequence[Any], folder: Path) -> tuple[Path, Path]:
    """Write the rows of any experiment as results.json (one row a line) and results.csv, each replaced in one step.

    Args:
        rows: data classes of one type, at least one, in the files' order.
        folder: where to; made if missing.

    Returns:
        The paths of results.json and results.csv.
    """
    lines = ",\n".join("  " + json.dumps(asdict(row), allow_nan=False) for row in rows)
    names = [field.name for field in fields(rows[0])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_csv_field(getattr(row, name)) for name in names] for row in rows)
    return (
        write_text(folder / "results.json", f"[\n{lines}\n]\n"),
        write_text(folder / "results.csv", text.getvalue()),
    )


def experiment_of_rows(path: Path) -> str | None:
    """Say of which experiment the rows of a results.json are, whatever else may be wrong with them.

    Args:
        path: the file.

    Returns:
        What its rows have under `experiment`; None where they have nothing, as those of a benchmark.
    """
    try:
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    named = [row["experiment"] for row in rows if "experiment" in row] if isinstance(rows, list) else []
    return named[0] if named else None


@dataclass(frozen=True)
class _Trace:
    """What the rows of all experiments have in common."""

    artifact: str


_TRACES = TypeAdapter(list[_Trace])


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by setting, method and seed; partitions without alpha come after those with one."""
    return sorted(
        rows,
        key=lambda row: (
            row.benchmark,
            row.dataset,
            row.model,
            row.num_clients,
            row.num_rounds,
            row.alpha is None,
            row.partition,
            row.alpha or 0.0,
            row.reference,
            row.method,
            row.seed,
            row.artifact,
        ),
    )


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, allow_nan=False)


def write_results(rows: Sequence[Row], folder: Path) -> tuple[Path, Path]:
    """Write the rows of a benchmark in the order of `sorted_rows`; see `write_rows`.

    Args:
        rows: the rows, in any order, at least one.
        folder: where to; made if missing.

    Returns:
        The paths of results.json and results.csv.
    """
    return write_rows(sorted_rows(rows), folder)


def read_results(path: Path) -> list[Row]:
    """Read the rows of a results.json.

    Args:
        path: the file.

    Returns:
        The rows, in the file's order.

    Raises:
        InputError: the file is missing, or is no list of rows with exactly the fields of `Row`.
    """
    return read_checked(path, _ROWS, "result rows")


def read_checked(path: Path, rows: TypeAdapter[list[T]], what: str) -> list[T]:
    """Read a results.json whose rows are of a known type.

    Args:
        path: the file.
        rows: the type of its content.
        what: the rows' name, for the message.

    Returns:
        The rows, in the file's order.

    Raises:
        InputError: the file is missing, or its content is of another type.
    """
    try:
        return rows.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"no results at {path}; expected a results.json") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = " ".join(str(part) for part in first["loc"])
        raise InputError(f"{path} is no list of {what}: {place}: {first['msg']}") from error


def read_artifact_keys(path: Path) -> list[str]:
    """Read which artifacts a results.json rests on, whatever experiment its rows are of.

    Args:
        path: the file.

    Returns:
        The key in each row.

    Raises:
        InputError: the file is no list of rows that name their artifact.
    """
    try:
        return [row.artifact for row in _TRACES.validate_json(path.read_bytes())]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = " ".join(str(part) for part in first["loc"])
        raise InputError(f"{path} is no list of result rows: {place}: {first['msg']}") from error


def write_text(path: Path, text: str) -> Path:
    """Write a text file so that a reader sees the old or the new content, never a part.

    Args:
        path: the file; its folder is made if missing.
        text: the content, written as UTF-8 with its line ends as they are.

    Returns:
        The path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
