"""Published accuracies."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.reporting.measure import Measure

COLUMNS = (
    "source",
    "table",
    "dataset",
    "model",
    "partition",
    "num_clients",
    "alpha",
    "method",
    "accuracy_mean",
    "accuracy_std",
    "repeats",
)
LEAST_REPEATS = 2
"""A deviation is of two runs at least: what is assumed where a paper does not say of how many."""


@dataclass(frozen=True)
class PublishedResult:
    """A published accuracy of a method after one round on Dirichlet-split data.

    Args:
        source: the paper.
        table: the table in it.
        dataset: name of the data set, spelled as in the settings.
        model: name of the model.
        partition: the scheme of ours that splits the data as the paper says.
        num_clients: number of clients.
        alpha: Dirichlet concentration.
        method: label of the method.
        mean: mean accuracy, a fraction.
        deviation: its standard deviation; None where the paper gives none.
        repeats: how many runs the mean is of; None where the paper does not say.

    Raises:
        InputError: a deviation of fewer than two runs, or a mean of none.
    """

    source: str
    table: str
    dataset: str
    model: str
    partition: str
    num_clients: int
    alpha: float
    method: str
    mean: float
    deviation: float | None
    repeats: int | None = None

    def __post_init__(self) -> None:
        least = 1 if self.deviation is None else LEAST_REPEATS
        if self.repeats is not None and self.repeats < least:
            raise InputError(f"repeats={self.repeats} of a published mean; allowed: empty, or at least {least}")

    @property
    def measure(self) -> Measure:
        """Its mean and deviation, of the fewest runs that the paper can have made."""
        return Measure(self.mean, self.deviation, self.repeats or LEAST_REPEATS)


def read_published(path: Path) -> tuple[PublishedResult, ...]:
    """Read published accuracies from a CSV file with the columns of `COLUMNS`, accuracies in per cent.

    Args:
        path: the file. Data sets are spelled as in papers: "FashionMNIST" becomes "fashion_mnist".

    Returns:
        The results in the file's order.

    Raises:
        InputError: the file is missing, lacks a column or holds text where a number is needed.
    """
    if not path.is_file():
        raise InputError(f"no published results at {path}; expected a CSV file with the columns {COLUMNS}")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise InputError(f"{path} has the columns {reader.fieldnames}; expected {list(COLUMNS)}")
        results = []
        for record in reader:
            try:
                results.append(_result(record))
            except (TypeError, ValueError) as error:
                raise InputError(f"{path}, line {reader.line_num}: {error}") from error
    return tuple(results)


def published_tables(path: Path, tables: Sequence[str]) -> list[PublishedResult]:
    """Read the published accuracies that the setting report.published names.

    Args:
        path: see `read_published`; it is not looked at for no tables.
        tables: each 'SOURCE, TABLE'.

    Returns:
        The results of these tables, in the file's order.

    Raises:
        InputError: a table has no comma, or is not in the file; or the file can't be read.
    """
    wanted = {_parsed(table): table for table in tables}
    results = read_published(path) if wanted else ()
    known = dict.fromkeys((one.source, one.table) for one in results)
    for table, text in wanted.items():
        if table not in known:
            allowed = "; ".join(", ".join(one) for one in known)
            raise InputError(f"report.published={text!r} is not in {path}; allowed: {allowed}")
    return [one for one in results if (one.source, one.table) in wanted]


def _parsed(text: str) -> tuple[str, str]:
    source, comma, table = text.partition(",")
    if not comma:
        raise InputError(f"report.published={text!r} must have the form 'SOURCE, TABLE'")
    return source.strip(), table.strip()


def _result(record: dict[str, str]) -> PublishedResult:
    return PublishedResult(
        source=record["source"],
        table=record["table"],
        dataset=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", record["dataset"]).lower(),
        model=record["model"],
        partition=record["partition"],
        num_clients=int(record["num_clients"]),
        alpha=float(record["alpha"]),
        method=record["method"],
        mean=float(record["accuracy_mean"]) / 100,
        deviation=float(record["accuracy_std"]) / 100 if record["accuracy_std"] else None,
        repeats=int(record["repeats"]) if record["repeats"] else None,
    )
