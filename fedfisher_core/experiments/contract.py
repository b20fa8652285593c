"""What an experiment is: settings, a plan of jobs, and what is made of their results."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import fedfisher_core.experiments
from fedfisher_core.jobs import Job
from fedfisher_core.registry import Registry, import_submodules
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.runs import Runs
from fedfisher_core.reporting.tables import Table
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.walk import Outcome

S = TypeVar("S", bound=ExperimentSettings)
P = TypeVar("P", bound="Plan")


@dataclass(frozen=True)
class Plan:
    """The work of an experiment.

    Args:
        jobs: all of them, in any order.
        stages: the jobs that each of DVC's stages is for, by the stage's name, in the order of the stages.
    """

    jobs: Sequence[Job[Any]]
    stages: Mapping[str, Sequence[str]]


class Experiment(ABC, Generic[S, P]):
    """One experiment, such as the benchmark.

    Its class is imported to look at settings: what computes or draws is to be imported by the methods that need it.
    """

    name: ClassVar[str]
    """What settings files have under `experiment`."""

    settings: type[S]
    """Its settings, which hold the name as default of the field `experiment`."""

    drawn_from: ClassVar[tuple[Path, ...]] = ()
    """Files in the working directory that its page shows beside the results."""

    @abstractmethod
    def plan(self, settings: S) -> P:
        """Check everything that can be checked without work, and list the jobs.

        Args:
            settings: the experiment.

        Returns:
            The jobs, and whatever the other methods need to know of them.

        Raises:
            InputError: names the setting, its value and what is allowed.
        """

    @abstractmethod
    def rows(self, plan: P, outcome: Outcome) -> Sequence[Any]:
        """Gather what was measured.

        Args:
            plan: the experiment.
            outcome: of its jobs.

        Returns:
            Data classes of one type with the field `artifact`, in the order of the result files.
        """

    @abstractmethod
    def files(self, plan: P, outcome: Outcome, rows: Sequence[Any], page: PageData) -> Mapping[str, bytes]:
        """Make the report.

        Args:
            plan: the experiment.
            outcome: of its jobs.
            rows: the results.
            page: what every report shows beside its results.

        Returns:
            Files by name, index.html among them; the result files are made of the rows.
        """

    @abstractmethod
    def runs(self, plan: P, outcome: Outcome, rows: Sequence[Any]) -> Runs:
        """List what MLflow records.

        Args:
            plan: the experiment.
            outcome: of its jobs.
            rows: the results.

        Returns:
            The runs; their figures are drawn only where a run is new.
        """

    @abstractmethod
    def read(self, path: Path) -> Sequence[Any]:
        """Read the rows of a results.json.

        Args:
            path: the file.

        Returns:
            The rows.

        Raises:
            InputError: the file is missing or of another type.
        """

    @abstractmethod
    def tables(self, rows: Sequence[Any]) -> Sequence[Table]:
        """Sum the results up for the terminal.

        Args:
            rows: the results.

        Returns:
            One or several tables.
        """


def experiment(chosen: type[Experiment[Any, Any]]) -> type[Experiment[Any, Any]]:
    """Register an experiment; a decorator of its class."""
    experiments.add(chosen.name, chosen())
    return chosen


def experiment_of(settings: ExperimentSettings) -> Experiment[Any, Any]:
    """Look up the experiment that settings are of."""
    return experiments.get(settings.experiment)


experiments: Registry[Experiment[Any, Any]] = Registry(
    noun="experiment",
    group="fedfisher.experiments",
    builtin=lambda: import_submodules(fedfisher_core.experiments),
)
