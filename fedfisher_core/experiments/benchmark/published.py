"""Comparison of a benchmark's accuracies with published ones."""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from fedfisher_core.reporting.measure import Measure

COLUMNS = (
    "source",
    "table",
    "dataset",
    "model",
    "num_clients",
    "alpha",
    "method",
    "accuracy_mean",
    "accuracy_std",
)
TOLERANCE = 2.0
"""How many deviations a result may lie from the published mean before the report says so."""


@dataclass(frozen=True)
class PublishedResult:
    """A published accuracy of a method after one round on Dirichlet-split data.

    Args:
        source: the paper.
        table: the table in it.
        dataset: name of the data set, spelled as in the settings.
        model: name of the model.
        num_clients: number of clients.
        alpha: Dirichlet concentration.
        method: label of the method.
        mean: mean accuracy, a fraction.
        deviation: its standard deviation; None where the paper gives none.
    """

    source: str
    table: str
    dataset: str
    model: str
    num_clients: int
    alpha: float
    method: str
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Comparison:
    """Our accuracy beside a published one.

    Args:
        setting: our setting.
        published: the published result.
        ours: our accuracy over the seeds.
    """

    setting: Setting
    published: PublishedResult
    ours: Measure

    @property
    def difference(self) -> float:
        """Our mean less the published one, a fraction."""
        return self.ours.mean - self.published.mean

    @property
    def yardstick(self) -> float | None:
        """The published deviation, or ours where none is; None where that is unknown or nil."""
        deviation = self.ours.deviation if self.published.deviation is None else self.published.deviation
        return deviation or None

    @property
    def deviations(self) -> float | None:
        """The difference as a multiple of the deviation; None without a deviation."""
        return None if self.yardstick is None else self.difference / self.yardstick

    @property
    def beyond(self) -> bool | None:
        """Whether the difference exceeds two deviations; None without a deviation."""
        return None if self.deviations is None else abs(self.deviations) > TOLERANCE


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


def _result(record: dict[str, str]) -> PublishedResult:
    return PublishedResult(
        source=record["source"],
        table=record["table"],
        dataset=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", record["dataset"]).lower(),
        model=record["model"],
        num_clients=int(record["num_clients"]),
        alpha=float(record["alpha"]),
        method=record["method"],
        mean=float(record["accuracy_mean"]) / 100,
        deviation=float(record["accuracy_std"]) / 100 if record["accuracy_std"] else None,
    )


def compare(rows: Iterable[Row], published: Sequence[PublishedResult]) -> tuple[Comparison, ...]:
    """Set our accuracies beside the published ones of the same setting and method.

    Only settings of one round with an alpha are compared, as only such are published. Several papers may
    report the same setting and method: each gives a comparison.

    Args:
        rows: our rows.
        published: published results.

    Returns:
        The comparisons, in the order of our settings and methods, then of the published results.
    """
    return tuple(
        Comparison(summary.setting, result, method.accuracy)
        for summary in summarise(rows)
        for method in summary.methods
        for result in published
        if method.row.num_rounds == 1 and _published_setting(method.row) == _published_setting(result)
    )


def _published_setting(one: Row | PublishedResult) -> tuple[str, str, int, float | None, str]:
    return (one.dataset, one.model, one.num_clients, one.alpha, one.method)
