"""The entries of a leaderboard, read from reports; each is one method in one setting."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Role, Row, is_local_mean, method_of, networks_of, role_of
from fedfisher_core.experiments.benchmark.summary import Setting, by_setting
from fedfisher_core.experiments.contract import DEFAULT
from fedfisher_core.reporting.formats import setting_value
from fedfisher_core.reporting.measure import DIGITS, Repeated, gather, paired_difference, with_most_seeds
from fedfisher_core.reporting.ranks import ranks
from fedfisher_core.reporting.rows import RESULTS, experiment_of_rows, read_rows

ENTRIES = Path("leaderboard/entries")
"""Folder of submitted results, each a folder with the results, their settings and what was checked."""


@dataclass(frozen=True)
class BenchmarkReport:
    """The report of a benchmark.

    Args:
        settings: its rows by setting, then by the method's label.
    """

    name: str
    folder: Path
    settings: dict[Setting, dict[str, list[Row]]]


@dataclass(frozen=True)
class OtherReport:
    """The report of an experiment that does not compare global models by their accuracy on test images.

    Args:
        why: what it reports.
    """

    name: str
    folder: Path
    why: str


@dataclass(frozen=True)
class Reports:
    """All reports, by name: those that a leaderboard shows, and the others."""

    benchmarks: tuple[BenchmarkReport, ...]
    left_out: tuple[OtherReport, ...]


def read_reports(folders: Sequence[Path]) -> Reports:
    """Read every report in some folders.

    Args:
        folders: each holds a folder a report. The first report of a name counts.

    Raises:
        InputError: a folder is missing, or a results.json can't be read; the message names the file, the field and what
            is allowed. Or no folder holds a benchmark.
    """
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"reports={str(folder)!r} is no folder; allowed: folders of reports")
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob(f"*/{RESULTS}")):
            found.setdefault(path.parent.name, path)
    read = [read_report(path.parent) for _, path in sorted(found.items())]
    benchmarks = tuple(one for one in read if isinstance(one, BenchmarkReport))
    if not benchmarks:
        where = " and ".join(map(str, folders)) or "no folder"
        raise InputError(f"no results of a benchmark in {where}; allowed: folders that hold NAME/{RESULTS}")
    return Reports(benchmarks, tuple(one for one in read if isinstance(one, OtherReport)))


def read_report(folder: Path) -> BenchmarkReport | OtherReport:
    """Read the report in a folder; `InputError` if it can't be read."""
    name, path = folder.name, folder / RESULTS
    experiment = experiment_of_rows(path) or DEFAULT
    if experiment != DEFAULT:
        return OtherReport(name, folder, experiment.replace("_", " "))
    rows = read_rows(path, Row)
    if not rows:
        raise InputError(f"{path} has no rows; allowed: at least one")
    if any(row.held_out is not None for row in rows):
        return OtherReport(name, folder, "held-out training images")
    try:
        return BenchmarkReport(name, folder, by_setting(rows))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def read_benchmark(folder: Path) -> BenchmarkReport:
    """Read the report of a benchmark on test examples; `InputError` if it is another's, or can't be read."""
    report = read_report(folder)
    if isinstance(report, OtherReport):
        raise InputError(f"{folder} is a report of {report.why}; allowed: benchmarks on test examples")
    return report


SETTING = (
    "report",
    "dataset",
    "model",
    "partition",
    "alpha",
    "shift",
    "num_clients",
    "num_rounds",
    "cohort",
    "unseen_clients",
    "objective",
    "server_optimiser",
    "training",
    "track",
    "wire_budget",
)
"""The fields of an entry that methods share which are ranked against each other."""


@dataclass(frozen=True)
class Entry:
    """What one method reached in one setting, over its seeds.

    Args:
        partition: name of the scheme that splits the data.
        alpha: Dirichlet concentration; None where the partition has none.
        shift: how clients see their examples, such as "rotation 45"; None without a shift.
        cohort: clients that take part in a round; None for all.
        unseen_clients: clients that take part in no round; None where all may.
        server_optimiser: label of what the server makes of an aggregate.
        training: settings of the clients' training; None where the report does not keep them.
        wire_budget: bits of one client's upload, "fedavg" or "none"; None where the report does not keep it.
        method: its label, with the method's name added where the label does not contain it.
        variant: whether its label names other settings than the method's own name does, as in an ablation.
        track: how the benchmark sets its methods; None where it has its own settings.
        num_networks: networks that a prediction needs.
        accuracy: mean test accuracy over the seeds, a fraction.
        accuracy_deviation: its sample standard deviation; None for a single seed.
        accuracy_by_seed: test accuracy with each seed, a fraction.
        rank: among the single networks of the setting that ran with every seed of it, 1 for the best; those that tie
            share the mean of their ranks. None for all others.
        num_ranked: how many networks the setting ranks.
        below_local_mean: whether its accuracy, over common seeds, is below the mean of the clients' own networks; None
            where these were not measured, and for themselves.
        upload_bits: bits on the wire, all clients, mean over the seeds.
        download_bits: bits from the server, all clients, mean over the seeds.
        server_seconds: decoding and aggregation, mean over the seeds.
        uses_validation: whether the method saw the server's validation set with any seed.
        epsilon: the most that one client spends with any seed; None without differential privacy.
    """

    report: str
    dataset: str
    model: str
    partition: str
    alpha: float | None
    shift: str | None
    num_clients: int
    num_rounds: int
    cohort: int | None
    unseen_clients: int | None
    objective: str
    server_optimiser: str
    training: str | None
    wire_budget: str | None
    method: str
    kind: Role
    variant: bool
    track: str | None
    num_networks: int
    accuracy: float
    accuracy_deviation: float | None
    num_seeds: int
    accuracy_by_seed: Mapping[int, float]
    rank: float | None
    num_ranked: int
    below_local_mean: bool | None
    upload_bits: float
    download_bits: float
    server_seconds: float
    uses_validation: bool
    epsilon: float | None

    @property
    def setting(self) -> tuple[Any, ...]:
        """The values of `SETTING`."""
        return tuple(getattr(self, name) for name in SETTING)

    @property
    def score(self) -> float:
        """The accuracy, rounded so that means which differ only by rounding errors tie."""
        return round(self.accuracy, DIGITS)


def make_entries(reports: Iterable[BenchmarkReport]) -> tuple[Entry, ...]:
    """Make the entries of all benchmarks, by setting, in the order of the reports.

    Within a setting, single networks come by rank, then ensembles and references by falling accuracy.
    """
    return tuple(
        entry
        for report in reports
        for methods in report.settings.values()
        for entry in _entries_of(report.name, methods)
    )


def _entries_of(report: str, methods: Mapping[str, Sequence[Row]]) -> Iterator[Entry]:
    """Make the entries of one split, budget by budget; all budgets share the clients' own networks."""
    local = next((rows for rows in methods.values() if is_local_mean(rows[0])), ())
    for group in gather(methods.values(), lambda rows: _wire_budget(rows[0])).values():
        entries = [_entry(report, rows, local) for rows in group]
        single = {one.method: one for one in entries if one.kind is Role.ONE_NETWORK}
        whole = [single[method] for method in with_most_seeds({name: one.num_seeds for name, one in single.items()})]
        found = ranks([one.score for one in whole]) if whole else ()
        rank_of = {one.method: float(rank) for one, rank in zip(whole, found, strict=True)}
        kinds = list(Role)
        for one in sorted(entries, key=lambda one: (kinds.index(one.kind), -one.score, one.method)):
            yield replace(one, rank=rank_of.get(one.method), num_ranked=len(whole))


def _entry(report: str, rows: Sequence[Row], local: Sequence[Row]) -> Entry:
    """Make an entry without a rank."""
    own, row, kind = Repeated(rows), rows[0], role_of(rows[0])
    accuracy = own.measure("accuracy")
    return Entry(
        report=report,
        dataset=row.dataset,
        model=row.model,
        partition=row.partition,
        alpha=row.alpha,
        shift=row.shift_name,
        num_clients=row.num_clients,
        num_rounds=row.num_rounds,
        cohort=row.cohort,
        unseen_clients=row.unseen_clients,
        objective=row.objective,
        server_optimiser=row.server_optimiser,
        training=_training(row),
        wire_budget=_wire_budget(row),
        method=name_of(row),
        kind=kind,
        variant=row.method != method_of(row),
        track=row.track,
        num_networks=networks_of(row),
        accuracy=accuracy.mean,
        accuracy_deviation=accuracy.deviation,
        num_seeds=accuracy.n,
        accuracy_by_seed={row.seed: row.accuracy for row in rows},
        rank=None,
        num_ranked=0,
        below_local_mean=_is_below(rows, local),
        upload_bits=own.measure("upload_bits").mean,
        download_bits=own.measure("download_bits").mean,
        server_seconds=own.measure("server_seconds").mean,
        uses_validation=any(one.uses_validation for one in rows),
        epsilon=max(own.values("epsilon"), default=None),
    )


def name_of(row: Row) -> str:
    """Name a method by its label, and by the method too where a report labels, say, ma_echo_official just ma_echo.

    Under one name, ranks would average over different methods.
    """
    method = method_of(row)
    said = re.search(rf"(?<!\w){re.escape(method)}(?!\w)", row.method)
    return row.method if said else f"{row.method} ({method})"


def _is_below(rows: Sequence[Row], local: Sequence[Row]) -> bool | None:
    if rows is local:
        return None
    ours, alone = ({row.seed: row.accuracy for row in group} for group in (rows, local))
    difference = paired_difference(ours, alone)
    return None if difference is None else difference.mean < 0


def _wire_budget(row: Row) -> str | None:
    wire = row.method_settings.get("wire")
    budget = wire.get("budget") if isinstance(wire, dict) else None
    if isinstance(budget, int):
        return f"{budget} bits"
    return budget if isinstance(budget, str) else None


def _training(row: Row) -> str | None:
    given = {name: value for name, value in (row.training or {}).items() if value is not None}
    return setting_value(given) if given else None
