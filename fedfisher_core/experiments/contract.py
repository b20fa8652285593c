"""What an experiment is: settings, a plan of jobs, and what is made of their results."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import fedfisher_core.experiments
from fedfisher_core.errors import InputError
from fedfisher_core.jobs import Job
from fedfisher_core.registry import Registry, import_submodules
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.rows import read_rows
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.reporting.tables import Table
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.walk import Outcome

if TYPE_CHECKING:
    from fedfisher_core.evaluation.memory import Load

S = TypeVar("S", bound=ExperimentSettings)
P = TypeVar("P", bound="Plan")
R = TypeVar("R")


@dataclass(frozen=True)
class Plan:
    """The work of an experiment.

    Args:
        jobs: all of them, in any order.
        stages: the jobs that each of DVC's stages is for, by the stage's name, in the order of the stages.
        largest: what one of the jobs holds in memory at once, the one that holds most; None where nobody reckons it.
    """

    jobs: Sequence[Job[Any]]
    stages: Mapping[str, Sequence[str]]
    largest: "Load | None" = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Experiment(Generic[S, P, R]):
    """One experiment, such as the benchmark.

    It is imported to look at settings: functions of modules that compute or draw are given as `late` ones.

    Args:
        settings: class of its settings; their field `experiment` has the experiment's name as its default.
        row: data class of one result, with the field `artifact`, the key of what its numbers were read from.
        plan: checks all that can be checked without work, and lists the jobs; raises `InputError`, which names the
            setting, its value and what is allowed.
        rows: gathers what the plan's jobs measured, in the order of the result files; jobs that failed have no
            artifact, and what needs them has no row.
        files: makes the report of plan, outcome, rows and what every report shows: files by name, index.html among
            them. The result files are made of the rows.
        runs: lists what MLflow records; figures are drawn only where a run is new.
        tables: sums the rows up for the terminal.
        drawn_from: files in the working directory that the page shows beside the results.

    Raises:
        InputError: `row` is no such data class.
    """

    settings: type[S]
    row: type[R]
    plan: Callable[[S], P]
    rows: Callable[[P, Outcome], Sequence[R]]
    files: Callable[[P, Outcome, Sequence[R], PageData], Mapping[str, bytes]]
    runs: Callable[[P, Outcome, Sequence[R]], Runs]
    tables: Callable[[Sequence[R]], Sequence[Table]]
    drawn_from: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not is_dataclass(self.row) or "artifact" not in {one.name for one in fields(self.row)}:
            raise InputError(f"row={self.row.__qualname__}; allowed: data classes with the field 'artifact'")

    def read(self, path: Path) -> list[R]:
        """Read the rows of a results.json; see `read_rows`."""
        return read_rows(path, self.row)


def late(name: str) -> Callable[..., Any]:
    """Stand for a function whose module is imported when the function is called.

    Args:
        name: of module and function, such as "my_package.page:report_files".

    Returns:
        A function that calls the other; it raises `InputError` where there is none.
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
    """Look up the experiment that settings are of."""
    return experiments.get(settings.experiment)


experiments: Registry[Experiment[Any, Any, Any]] = Registry(
    noun="experiment",
    group="fedfisher.experiments",
    builtin=lambda: import_submodules(fedfisher_core.experiments),
)
