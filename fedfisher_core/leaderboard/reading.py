"""The reports that a leaderboard is made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, by_setting
from fedfisher_core.experiments.loading import DEFAULT
from fedfisher_core.reporting.rows import RESULTS, experiment_of_rows, read_rows


@dataclass(frozen=True)
class BenchmarkReport:
    """The report of a benchmark.

    Args:
        name: of its folder.
        folder: where it is.
        settings: its rows by setting, then by the method's label.
    """

    name: str
    folder: Path
    settings: dict[Setting, dict[str, list[Row]]]


@dataclass(frozen=True)
class OtherReport:
    """The report of an experiment that compares no global models by their accuracy on test images.

    Args:
        name: of its folder.
        folder: where it is.
        why: what it is of.
    """

    name: str
    folder: Path
    why: str


@dataclass(frozen=True)
class Reports:
    """All reports.

    Args:
        benchmarks: those that a leaderboard shows, by name.
        left_out: the others, by name.
    """

    benchmarks: tuple[BenchmarkReport, ...]
    left_out: tuple[OtherReport, ...]


def read_reports(folders: Sequence[Path]) -> Reports:
    """Read every report in some folders.

    Args:
        folders: each holds a folder a report. Where several hold a report of one name, the first folder's counts.

    Returns:
        The reports.

    Raises:
        InputError: a folder is not there, or a results.json can't be read as what it should be; the message names the
            file, the field and what is allowed. Or there is no benchmark at all.
    """
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"reports={str(folder)!r} is no folder; allowed: folders of reports")
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob(f"*/{RESULTS}")):
            found.setdefault(path.parent.name, path)
    read = [_read(name, path) for name, path in sorted(found.items())]
    benchmarks = tuple(one for one in read if isinstance(one, BenchmarkReport))
    if not benchmarks:
        where = " and ".join(map(str, folders)) or "no folder"
        raise InputError(f"no results of a benchmark in {where}; allowed: folders that hold NAME/{RESULTS}")
    return Reports(benchmarks, tuple(one for one in read if isinstance(one, OtherReport)))


def _read(name: str, path: Path) -> BenchmarkReport | OtherReport:
    experiment = experiment_of_rows(path) or DEFAULT
    if experiment != DEFAULT:
        return OtherReport(name, path.parent, experiment.replace("_", " "))
    rows = read_rows(path, Row)
    if not rows:
        raise InputError(f"{path} has no rows; allowed: at least one")
    if any(row.held_out is not None for row in rows):
        return OtherReport(name, path.parent, "held-out training images")
    try:
        return BenchmarkReport(name, path.parent, by_setting(rows))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
