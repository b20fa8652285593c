"""The work of an experiment: its plan, what the store holds of it, and whether a run would change anything."""

import hashlib
import inspect
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

import fedfisher_core.reporting
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import OutputError
from fedfisher_core.engine.installed import is_core, module_name
from fedfisher_core.engine.performing import Transients
from fedfisher_core.engine.plan import Agenda, Outcome, agenda_of
from fedfisher_core.engine.registry import plugin_versions
from fedfisher_core.engine.store import Artifact, Store, open_store
from fedfisher_core.experiments.contract import Experiment, Plan, experiment_of, own_name
from fedfisher_core.reporting.page import TEMPLATES
from fedfisher_core.reporting.rows import PAGE, is_current
from fedfisher_core.reporting.runs import Runs, digest, with_page
from fedfisher_core.settings import ExperimentSettings
from flows.kept_networks import with_networks
from flows.probes import require_reachable
from flows.terminal import command_line
from tasks.tracking import is_recorded


@dataclass
class Work:
    """An experiment with what the store holds of it. While it lives, no other run deletes anything from its store.

    Args:
        transients: results that are deleted once no job needs them.
        outcome: what the store holds at first; all results once the work is done.
    """

    experiment: Experiment[Any, Any, Any]
    settings: ExperimentSettings
    plan: Plan
    store: Store
    agenda: Agenda
    transients: Transients
    outcome: Outcome

    @property
    def folder(self) -> Path:
        """Folder of the report."""
        return self.settings.run.reports / self.settings.name

    @property
    def versions(self) -> dict[str, int]:
        """Versions of the code of its jobs, by name of the job's class."""
        # Jobs of different packages may have one name.
        return {
            type(job).__name__
            if is_core(type(job))
            else f"{module_name(type(job))}.{type(job).__qualname__}": job.version
            for job in self.agenda.graph.values()
        }

    @computed_once
    def rows(self) -> Sequence[Any]:
        """The results, once the work is done."""
        return self.experiment.rows(self.plan, self.outcome)

    @property
    def content(self) -> str:
        """A digest of everything that the report shows, except the time, the command and the libraries that made it."""
        rows = [asdict(row) for row in self.rows]
        return digest([rows, self.settings.model_dump(mode="json"), plugin_versions(), _drawn_by(self.experiment)])

    @property
    def result_keys(self) -> list[str]:
        """Keys of the artifacts that results are read from; all other artifacts lead to these."""
        names = [name for name in self.agenda.targets if name in self.outcome.artifacts]
        return sorted({self.outcome.artifacts[name].key for name in names})

    def runs(self) -> Runs:
        """Return what MLflow records, with the report's page and the global networks."""
        runs = self.experiment.runs(self.plan, self.outcome, self.rows)
        kept = with_networks(runs, self.rows, self.store, self.settings.tracking.models)
        return with_page(kept, self.folder / PAGE, self.content)

    def artifacts(self) -> list[Artifact]:
        """List the artifacts that the results rest on, without decoded data and what is deleted once no job needs it.

        Raises:
            OutputError: results are missing.
        """
        if missing := [name for name in self.agenda.targets if name not in self.outcome.artifacts]:
            raise OutputError(f"{self.settings.name}: {len(missing)} results are missing; run it again")
        graph = self.agenda.graph.values()
        jobs = {job.key: job for job in graph if job.transient is None and job.kind != "data"}
        # Inputs of a result that was found may be missing.
        found = (self.store.refer(job.kind, key) for key, job in jobs.items())
        return [artifact for artifact in found if artifact is not None]


def look_up(settings: ExperimentSettings) -> tuple[ExperimentSettings, Agenda, Store]:
    """Plan an experiment and look up what the store holds of it, without what a run prepares to write.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    settings = own_name(settings)
    store = open_store(settings.run.store, settings.run.cache)
    return settings, agenda_of(experiment_of(settings).plan(settings).jobs, store), store


def prepare(settings: ExperimentSettings) -> Work:
    """Check everything that can be checked before any work, and look up what the store holds.

    Args:
        settings: where they have the name of params.yaml but differ from it, they get another name.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    settings = own_name(settings)
    experiment = experiment_of(settings)
    plan = experiment.plan(settings)
    require_reachable(settings, plan.largest)
    store, holds = open_store(settings.run.store, settings.run.cache), ExitStack()
    if settings.run.runner == "dask":
        # Its workers have working directories of their own.
        store = store.absolute()
    run = holds.enter_context(store.used_by_run(command_line()))
    agenda = agenda_of(plan.jobs, store)
    found = Outcome({name: agenda.found[job.key] for name, job in agenda.graph.items() if job.key in agenda.found})
    work = Work(experiment, settings, plan, store, agenda, Transients(agenda, store, run), found)
    finalize(work, holds.close)
    store.require_versions(work.versions)
    return work


def is_unchanged(work: Work) -> bool:
    """Say whether all of an experiment is there: results, report and records."""
    if work.outcome.failed or any(name not in work.outcome.artifacts for name in work.agenda.targets):
        return False
    return is_current(work.folder, work.content) and is_recorded(
        work.settings.tracking, work.settings.name, work.runs()
    )


def _drawn_by(experiment: Experiment[Any, Any, Any]) -> str:
    """Digest the code, the files and the templates that make the page."""
    own = Path(inspect.getfile(experiment.settings))
    packaged = sys.modules[experiment.settings.__module__].__package__
    found = list(own.parent.glob("*.py")) if packaged else [own]
    found += Path(inspect.getfile(fedfisher_core.reporting)).parent.glob("*.py")
    found += [path for path in experiment.drawn_from if path.is_file()]
    templates = [one for one in TEMPLATES.iterdir() if one.is_file()]
    held = [path.read_bytes() for path in sorted(found)] + [one.read_bytes() for one in sorted(templates, key=str)]
    return hashlib.sha256(b"".join(held)).hexdigest()
