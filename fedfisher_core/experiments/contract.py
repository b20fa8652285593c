"""What an experiment is: settings, a plan of jobs, and what is made of their results."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import fedfisher_core.experiments
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.registry import Registry, import_submodules
from fedfisher_core.reporting.formats import Table
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.rows import read_rows
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.settings import ExperimentSettings

# Settings, rows and pages are read without torch, which takes seconds.
if TYPE_CHECKING:
    from fedfisher_core.models.memory import Load

S = TypeVar("S", bound=ExperimentSettings)
P = TypeVar("P", bound="Plan")
R = TypeVar("R")


@dataclass(frozen=True)
class Plan:
    """The work of an experiment.

    Args:
        jobs: in any order.
        largest: the most that a job holds in memory at once; None where it is not estimated.
    """

    jobs: Sequence[Job[Any]]
    largest: "Load | None" = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Experiment(Generic[S, P, R]):
    """One experiment, such as the benchmark.

    Commands import it to look at settings, so functions of modules that compute or draw are given as `late` ones.

    Args:
        settings: class of its settings; the default of their field `experiment` is the experiment's name.
        row: data class of one result, with the field `artifact`, the key of the artifact that its numbers come from.
        plan: checks all that can be checked without work, and lists the jobs; raises `InputError`, which names the
            setting, its value and what is allowed.
        rows: gathers what the plan's jobs measured, in the order of the result files. A job that failed has no
            artifact, and results that need it have no row.
        files: makes the files of the report, index.html among them, by name; result files are made of the rows. It
            needs rows and the page's data alone, so that a report's files are enough to make its page again.
        runs: lists what MLflow records; figures are drawn only for a new run.
        tables: summarises the rows for the terminal.
        shown: gathers what the page shows in addition to the rows and the settings, as data that JSON can hold.
        drawn_from: files in the working directory that the page shows in addition to the results.

    Raises:
        InputError: `row` is no such data class.
    """

    settings: type[S]
    row: type[R]
    plan: Callable[[S], P]
    rows: Callable[[P, Outcome], Sequence[R]]
    files: Callable[[Sequence[R], PageData], Mapping[str, bytes]]
    runs: Callable[[P, Outcome, Sequence[R]], Runs]
    tables: Callable[[Sequence[R]], Sequence[Table]]
    shown: Callable[[P, Outcome], Mapping[str, Any]] = lambda plan, outcome: {}
    drawn_from: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not is_dataclass(self.row) or "artifact" not in {one.name for one in fields(self.row)}:
            raise InputError(f"row={self.row.__qualname__}; allowed: data classes with the field 'artifact'")

    def read(self, path: Path) -> list[R]:
        """Read the rows of a results.json; see `read_rows`."""
        return read_rows(path, self.row)


def late(name: str) -> Callable[..., Any]:
    """Make a function that imports another one when it is called, and calls it.

    Args:
        name: module and function, such as "my_package.page:report_files".

    Raises:
        InputError: on the call, if there is no such function.
    """

    def call(*given: Any) -> Any:
        module, _, function = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), function)
        except (AttributeError, ImportError) as error:
            raise InputError(f"the experiment's function {name!r} can't be imported: {error}") from error
        return found(*given)

    return call


def experiment_of(settings: ExperimentSettings) -> Experiment[Any, Any, Any]:
    """Look up the experiment that settings belong to."""
    return experiments.get(settings.experiment)


experiments: Registry[Experiment[Any, Any, Any]] = Registry(
    noun="experiment",
    group="fedfisher.experiments",
    builtin=lambda: import_submodules(fedfisher_core.experiments),
)
