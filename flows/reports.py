"""Reports of finished experiments: found, printed, and their pages drawn again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfisher_core.engine.errors import InputError, in_one_line, printable, shown

if TYPE_CHECKING:
    from fedfisher_core.experiments.contract import Experiment
    from fedfisher_core.reporting.formats import Table

REPORTS = (Path("results"), Path("reports"))
"""Folders of reports: a user's own results come before committed reports."""


def print_tables(tables: "Sequence[Table]", *, json: bool) -> None:
    """Print at least one table, for people or as JSON."""
    from fedfisher_core.reporting.formats import as_json, as_text

    print(as_json(tables) if json else as_text(tables))


def find_report(name: str, folders: Sequence[Path]) -> Path:
    """Find the folder of an experiment's report, in the first folder that has it; `InputError` if none has."""
    from fedfisher_core.reporting.rows import RESULTS
    from fedfisher_core.settings.reading import nearest

    found = [folder / name for folder in folders if (folder / name / RESULTS).is_file()]
    if not found:
        known = sorted({path.parent.name for folder in folders for path in folder.glob(f"*/{RESULTS}")})
        where = " and ".join(map(str, folders))
        raise InputError(f"no report {shown(name)} in {where}; {nearest(name, known)}")
    return found[0]


def print_report(folder: Path, *, json: bool = False) -> None:
    """Print a report's tables, the jobs that failed, and the path of its page; `InputError` if rows are not valid."""
    from fedfisher_core.engine.failures import read_failed
    from fedfisher_core.reporting.rows import FAILED, RESULTS

    path = folder / RESULTS
    experiment = _experiment_of(path)
    rows = experiment.read(path)
    if not rows:
        raise InputError(f"{path} has no rows; allowed: at least one")
    try:
        tables = experiment.tables(rows)
    except InputError:
        raise
    # Even if each row is valid, the row that others are compared with may be missing.
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"{path} makes no table: {in_one_line(error)}; allowed: all rows that one run has written"
        ) from error
    print_tables(tables, json=json)
    if json:
        return
    for one in read_failed(folder / FAILED):
        print(f"\nfailed: {printable(one.job)}: {printable(one.reason)}")
    print(f"\nreport: {folder / 'index.html'}")


def count_rows(folder: Path) -> int:
    """Count the rows of a report; `InputError` if they are not valid."""
    from fedfisher_core.reporting.rows import RESULTS

    return len(_experiment_of(folder / RESULTS).read(folder / RESULTS))


def _experiment_of(path: Path) -> "Experiment[Any, Any, Any]":
    from fedfisher_core.experiments.contract import DEFAULT, experiments
    from fedfisher_core.reporting.rows import experiment_of_rows

    return experiments.get(experiment_of_rows(path) or DEFAULT)


def draw_page(folder: Path) -> None:
    """Make a report's page and its pictures again, from the results and the page's data in its folder.

    Raises:
        InputError: one of these files is missing or not valid, or a file can't be written.
    """
    from fedfisher_core.reporting.chart_script import write_script
    from fedfisher_core.reporting.page import DATA, read_page_data
    from fedfisher_core.reporting.rows import RESULTS, write_file

    experiment = _experiment_of(folder / RESULTS)
    page = read_page_data(folder / DATA)
    files = experiment.files(experiment.read(folder / RESULTS), page)
    write_script(folder.parent)
    for name, content in files.items():
        write_file(folder / name, content)
