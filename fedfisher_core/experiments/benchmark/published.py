"""Published numbers, and how a benchmark's accuracies compare with them."""

import csv
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import get_args

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.answer import LEVEL
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import DIGITS, Measure, WelchDifference, gather
from fedfisher_core.reporting.ranks import holm
from fedfisher_core.settings import AVERAGE, PLAIN, PartitionScheme

COLUMNS = (
    "source",
    "table",
    "dataset",
    "model",
    "partition",
    "num_clients",
    "alpha",
    "method",
    "metric",
    "mean",
    "deviation",
    "repeats",
    "note",
)
LEAST_REPEATS = 2
"""The number of runs that is assumed where a paper gives a deviation but no number; a deviation needs two."""


class Metric(StrEnum):
    """What a published number is; but for the last, the names are those of fields of `Row`."""

    ACCURACY = "accuracy"
    CLIENT_SECONDS = "client_seconds"
    SERVER_SECONDS = "server_seconds"
    PARAMETERS = "parameters"


@dataclass(frozen=True)
class PublishedResult:
    """A published number of a method after one round.

    Args:
        table: the table in it, with its part where one federation occurs twice.
        dataset: name of the data set, spelled as in the settings.
        model: name of the model; in words where this project has none.
        partition: our scheme that splits the data as the paper says.
        num_clients: None where the paper does not say.
        alpha: Dirichlet concentration; None without one, and where the number is of several or the paper does not say.
        mean: of an accuracy, a fraction.
        deviation: its standard deviation; None where the paper gives none.
        repeats: number of runs; None where the paper does not say.

    Raises:
        InputError: a deviation of fewer than two runs, a mean of none, or an accuracy of an unknown number of clients.
    """

    source: str
    table: str
    dataset: str
    model: str
    partition: str
    num_clients: int | None
    alpha: float | None
    method: str
    mean: float
    deviation: float | None
    repeats: int | None = None
    metric: Metric = Metric.ACCURACY
    note: str = ""

    def __post_init__(self) -> None:
        if self.num_clients is None and self.metric is Metric.ACCURACY:
            raise InputError("num_clients is empty of a published accuracy; allowed: a number")
        least = 1 if self.deviation is None else LEAST_REPEATS
        if self.repeats is not None and self.repeats < least:
            raise InputError(f"repeats={self.repeats} of a published mean; allowed: empty, or at least {least}")

    @property
    def measure(self) -> Measure:
        """Its mean and deviation, with the fewest runs that the paper can have made."""
        return Measure(self.mean, self.deviation, self.repeats or LEAST_REPEATS)


def read_published(path: Path) -> tuple[PublishedResult, ...]:
    """Read published numbers from a CSV file with the columns of `COLUMNS`, in the file's order.

    Accuracies are in per cent. Data sets are spelled as in papers: "FashionMNIST" becomes "fashion_mnist".

    Raises:
        InputError: the file is missing, lacks a column, holds text where a number is needed, or has a row without a
            known partition or metric.
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
    """Read the published accuracies that the setting report.published names, in the file's order.

    Args:
        path: see `read_published`; without tables the file is not read.
        tables: each 'SOURCE, TABLE'.

    Raises:
        InputError: a table has no comma, or no accuracies in the file; or the file can't be read.
    """
    wanted = {_parsed(table): table for table in tables}
    read = read_published(path) if wanted else ()
    results = [one for one in read if one.metric is Metric.ACCURACY]
    known = dict.fromkeys((one.source, one.table) for one in results)
    for table, text in wanted.items():
        if table not in known:
            allowed = "; ".join(", ".join(one) for one in known)
            raise InputError(f"report.published={text!r} has no accuracies in {path}; allowed: {allowed}")
    return [one for one in results if (one.source, one.table) in wanted]


def _parsed(text: str) -> tuple[str, str]:
    source, comma, table = text.partition(",")
    if not comma:
        raise InputError(f"report.published={text!r} must have the form 'SOURCE, TABLE'")
    return source.strip(), table.strip()


def _result(record: dict[str, str]) -> PublishedResult:
    metric = Metric(_one_of(record, "metric", tuple(Metric)))
    unit = 100 if metric is Metric.ACCURACY else 1
    return PublishedResult(
        source=record["source"],
        table=record["table"],
        dataset=re.sub(r"(?<=[a-z])(?=[A-Z])", "_", record["dataset"]).lower(),
        model=record["model"],
        partition=_one_of(record, "partition", get_args(PartitionScheme)),
        num_clients=int(record["num_clients"]) if record["num_clients"] else None,
        alpha=float(record["alpha"]) if record["alpha"] else None,
        method=record["method"],
        metric=metric,
        mean=float(record["mean"]) / unit,
        deviation=float(record["deviation"]) / unit if record["deviation"] else None,
        repeats=int(record["repeats"]) if record["repeats"] else None,
        note=record["note"],
    )


def _one_of(record: dict[str, str], column: str, allowed: Sequence[str]) -> str:
    value = record[column]
    if value not in allowed:
        raise ValueError(f"{column}={value!r}; allowed: {', '.join(allowed)}")
    return value


MARGIN = 0.05
"""Largest difference from a published mean that counts as equivalent, as a fraction: 5 percentage points.

It was fixed before anything was measured: half of the 10 points by which the FedFisher workshop paper says that its
method leads the next. Within it, what a paper concludes from its table holds.
"""


class Verdict(StrEnum):
    """What a comparison with a published mean shows."""

    EQUIVALENT = "equivalent"
    ABOVE = "above"
    BELOW = "below"
    OPEN = "not decided"
    NO_DEVIATION = "no deviation published"
    ONE_SEED = "one seed here"
    NO_SPREAD = "neither varies"


@dataclass(frozen=True)
class EquivalenceTest:
    """Whether a mean lies within `MARGIN` of a published one, as one of all tests of a page.

    Args:
        interval: of the difference, 90 %, as for two one-sided tests at 5 %; not corrected for other tests.
        p_equivalent: for a true difference beyond the margin, corrected by Holm's procedure.
        p_beyond: for one within the margin, corrected by Holm's procedure.
    """

    interval: tuple[float, float]
    p_equivalent: float
    p_beyond: float


@dataclass(frozen=True)
class Comparison:
    """Our accuracy and a published one.

    Args:
        test: of the difference; None where one of the two has no deviation, or both have one of 0.
    """

    setting: Setting
    published: PublishedResult
    ours: Measure
    test: EquivalenceTest | None

    @property
    def difference(self) -> float:
        """Our mean less the published one, a fraction."""
        return self.ours.mean - self.published.mean

    @property
    def deviations(self) -> float | None:
        """The difference as a multiple of the published deviation; None without one."""
        return self.difference / self.published.deviation if self.published.deviation else None

    @property
    def verdict(self) -> Verdict:
        """What the comparison shows."""
        if self.test is None:
            if self.published.deviation is None:
                return Verdict.NO_DEVIATION
            return Verdict.ONE_SEED if self.ours.deviation is None else Verdict.NO_SPREAD
        if self.test.p_equivalent <= LEVEL:
            return Verdict.EQUIVALENT
        if self.test.p_beyond <= LEVEL:
            return Verdict.ABOVE if self.difference > 0 else Verdict.BELOW
        return Verdict.OPEN


def compare(rows: Iterable[Row], published: Sequence[PublishedResult]) -> tuple[Comparison, ...]:
    """Compare our accuracies with published ones of the same setting, split in the same way, and the same method.

    Only settings of one round, without a shift, with plain training and averaging, and with all clients
    and examples are compared, as only such are published. Several papers may report the same setting and method; each
    gives a comparison. Each is tested twice, for a difference within `MARGIN` and for one beyond it. Holm's procedure
    corrects for the number of all tests.

    Returns:
        The comparisons, in the order of our settings and methods, then of the published results.
    """
    found = [
        (summary.setting, result, method.accuracy)
        for summary in summarise(rows)
        for method in summary.methods
        for result in published
        if all(map(is_comparable, method.rows)) and _key(method.row) == _key(result)
    ]
    differences = [_difference(ours, result) for _, result, ours in found]
    tested = [one for one in differences if one is not None]
    p_values = [one.p_equivalent(MARGIN) for one in tested] + [one.p_beyond(MARGIN) for one in tested]
    corrected = holm(p_values)
    equivalent, beyond = iter(corrected[: len(tested)]), iter(corrected[len(tested) :])
    return tuple(
        Comparison(
            setting,
            result,
            ours,
            None if one is None else EquivalenceTest(one.interval(2 * LEVEL), next(equivalent), next(beyond)),
        )
        for (setting, result, ours), one in zip(found, differences, strict=True)
    )


def _difference(ours: Measure, result: PublishedResult) -> WelchDifference | None:
    if ours.deviation is None or result.deviation is None:
        return None
    # Where neither varies, the scatter of further runs is unknown.
    difference = WelchDifference.of(ours, result.measure)
    return difference if difference.error > 10**-DIGITS else None


def not_run(rows: Iterable[Row], published: Sequence[PublishedResult]) -> list[str]:
    """List the published results that no row of ours compares with.

    Returns:
        Settings that did not run at all, one text for those with the same data set, network and alphas; then methods
        that did not run in settings that did, or lacked clients there with some seed.
    """
    rows = list(rows)
    settings = {federation_of(row) for row in rows if is_comparable(row)}
    methods = [method for summary in summarise(rows) for method in summary.methods]
    ours = {_key(method.row) for method in methods if all(map(is_comparable, method.rows))}
    absent = [result for result in published if federation_of(result) not in settings]
    missing = [result for result in published if federation_of(result) in settings and _key(result) not in ours]
    federations = gather(absent, lambda one: (one.dataset, one.model, one.num_clients))
    alphas = {
        key: tuple(dict.fromkeys(f"{one.alpha:g}" for one in own if one.alpha is not None))
        for key, own in federations.items()
    }
    together = gather(alphas.items(), lambda item: (*item[0][:2], item[1]))
    return [
        f"{dataset}, {model}, {', '.join(str(clients) for (*_, clients), _ in own)} clients"
        + (f", α = {', '.join(skews)}" if skews else "")
        for (dataset, model, skews), own in together.items()
    ] + [
        f"{method} in {plural(len({federation_of(one) for one in own}), 'setting')} that ran"
        for method, own in gather(missing, lambda one: one.method).items()
    ]


def is_comparable(row: Row) -> bool:
    """Whether papers report such a federation: one round of all clients and examples, plain training and averaging."""
    as_usual = row.cohort is None and row.unseen_clients is None and row.canary_times is None
    whole = as_usual and row.train_size is None and not row.failed_clients
    plain = row.shift is None and row.objective == PLAIN and row.server_optimiser == AVERAGE and row.epsilon is None
    return row.num_rounds == 1 and whole and plain and row.held_out is None


def federation_of(one: Row | PublishedResult) -> tuple[str, str, str, int | None, float | None]:
    """What a row and a published number must share to be compared, but for the method."""
    return (one.dataset, one.model, one.partition, one.num_clients, one.alpha)


def _key(one: Row | PublishedResult) -> tuple[Hashable, ...]:
    return (*federation_of(one), one.method)
