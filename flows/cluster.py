"""Checks of a Dask cluster before a run uses it."""

import hashlib
import logging
import platform
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfisher_core.engine.errors import InputError, JobError, OutputError, anonymous
from fedfisher_core.engine.failures import JobsFailedError, described
from fedfisher_core.engine.installed import require_packages
from fedfisher_core.engine.job import Numerics
from fedfisher_core.engine.store import Mark, Store, open_store
from fedfisher_core.settings import CacheSettings, WorkSettings
from flows.dask_client import connected
from flows.reach import why_unreachable

if TYPE_CHECKING:
    from distributed import Client

    from fedfisher_core.models.memory import Load

GPU = "GPU"
"""The resource of a worker with a GPU, as in `dask worker --resources GPU=1`."""
_PATIENCE_SECONDS = 10
_ANSWER_SECONDS = 60
"""For all workers together; each may have to reach Prefect and a store, and to import the project."""
_WORKERS_SECONDS = 30
_TOGETHER_SECONDS = 2
_GIB = 2**30
_CODE = ("fedfisher_core", "tasks", "flows")
_SEEN_MARKS: set[Mark] = set()
log = logging.getLogger("fedfisher")
_LIBRARIES = ("torch", "numpy", "prefect", "distributed")


@dataclass(frozen=True)
class WorkerReport:
    """What a worker reports of itself.

    Args:
        versions: of Python, of libraries that decide results or travel between processes, and of the project's code.
        store: why it does not see the store; empty where it does.
        unwritable: why it can't write to the store, or to its own cache of it; empty where it can.
        prefect: why Prefect's server does not answer it; empty where it does.
        memory: of its machine or container, in bytes; None where the system does not say.
    """

    versions: Mapping[str, str]
    store: str
    unwritable: str
    prefect: str
    memory: int | None


_Answer = tuple[str, WorkerReport | Exception]
"""A worker's machine, and what the worker reports."""


def require_cluster(run: WorkSettings, prefect_api: str | None, largest: "Load | None" = None) -> None:
    """Check, before any work, that workers can do a run's tasks.

    Args:
        prefect_api: address of Prefect's server; None for a temporary one, which only this machine reaches.
        largest: the most that one of the jobs holds in memory.

    Raises:
        InputError: names the setting; and the worker, its machine and what it lacks.
    """
    if run.runner != "dask":
        return
    require_packages("distributed", "prefect-dask", extra="dask", who="run.runner='dask'")
    scheduler = run.dask.scheduler
    if scheduler is None:
        return
    setting = f"run.dask.scheduler={scheduler!r}"
    if prefect_api is None:
        raise InputError(
            f"{setting} needs a Prefect server that its workers reach; allowed: its address in tracking.prefect_api "
            "or PREFECT_API_URL"
        )
    # An address from the environment may hold a password, which workers must not get.
    prefect_api = anonymous(prefect_api)
    place = run.store.absolute() if isinstance(run.store, Path) else run.store
    with connected(scheduler, setting) as client, open_store(place, run.cache).marked() as mark:
        try:
            asked = (str(place), str(run.cache.folder), mark.name, mark.said, prefect_api)
            found = _reports_of_workers(client, setting, f"dask worker {scheduler} --nthreads 1", asked)
            workers = client.scheduler_info(n_workers=-1)["workers"]
        except OSError as error:
            raise InputError(f"{setting} was lost while its workers were checked: {error}") from error
    for address, (machine, seen) in found.items():
        worker = f"{setting}: Dask worker {address} on {machine}"
        if isinstance(seen, Exception):
            raise InputError(f"{worker} can't run this project's code: {described(seen)}") from seen
        _require_fit(worker, seen, place=place, prefect_api=prefect_api)
        if (threads := workers.get(address, {}).get("nthreads", 1)) > 1:
            raise InputError(
                f"{worker} has {threads} threads; allowed: 1, as torch's number of threads is of a whole process: "
                f"dask worker {scheduler} --nthreads 1 --nworkers {threads}"
            )
        _require_room(worker, seen.memory, largest)
    if Numerics.of(run).device != "cpu" and not any(one["resources"].get(GPU) for one in workers.values()):
        raise InputError(
            f"{setting} has no worker with a GPU, which run.device asks for; start one: "
            f"dask worker {scheduler} --nthreads 1 --resources {GPU}=1"
        )


def _reports_of_workers(client: "Client", setting: str, start: str, asked: tuple[str, ...]) -> Mapping[str, _Answer]:
    """Ask all workers; where there are none, wait for some, since Dask restarts a dead worker within seconds."""
    if found := _reports(client, setting, asked):
        return found
    log.warning("%s has no workers; the run waits %d s for some: %s", setting, _WORKERS_SECONDS, start)
    # The time starts only now: to find that the workers known to the scheduler are gone may have taken as long.
    deadline = time.monotonic() + _WORKERS_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if client.nthreads():
            # Workers that were started together arrive one after another.
            time.sleep(_TOGETHER_SECONDS)
            if found := _reports(client, setting, asked):
                return found
    raise InputError(f"{setting} has no workers; start some: {start}")


def _reports(client: "Client", setting: str, asked: tuple[str, ...]) -> Mapping[str, _Answer]:
    """Return, by a worker's address, its machine and what it reports; a worker that is lost meanwhile is left out."""
    machines = _ask_workers(client, setting, socket.gethostname)
    seen_by = _ask_workers(client, setting, worker_report, *asked, workers=list(machines)) if machines else {}
    return {address: (machines[address], seen) for address, seen in seen_by.items() if not isinstance(seen, OSError)}


def _ask_workers(
    client: "Client", setting: str, function: Callable[..., Any], *given: Any, **options: Any
) -> dict[str, Any]:
    """Have workers call a function, with a time-out: Dask waits for ever for a worker that is frozen or unreachable."""
    try:
        return client.run(function, *given, on_error="return", callback_timeout=_ANSWER_SECONDS, **options)
    except TimeoutError:
        now, workers = time.time(), client.scheduler_info(n_workers=-1)["workers"]
        silent = [address for address, one in workers.items() if now - one["last_seen"] > _PATIENCE_SECONDS]
        raise InputError(
            f"{setting}: not all Dask workers have answered within {_ANSWER_SECONDS} s; silent: "
            f"{', '.join(sorted(silent)) or 'none of them for long'}; allowed: workers that answer"
        ) from None


def _require_fit(worker: str, seen: WorkerReport, *, place: Path | str, prefect_api: str) -> None:
    for name, own in versions().items():
        if seen.versions.get(name) != own:
            raise InputError(f"{worker} has {name} {seen.versions.get(name)}; allowed, as here: {own}")
    if seen.store:
        raise InputError(f"{worker} does not see run.store={str(place)!r}: {seen.store}")
    if seen.unwritable:
        raise InputError(f"{worker} can't keep results: {seen.unwritable}")
    if seen.prefect:
        raise InputError(
            f"{worker} does not reach the Prefect server {prefect_api!r} (tracking.prefect_api or PREFECT_API_URL): "
            f"{seen.prefect}"
        )


def _require_room(worker: str, memory: int | None, largest: "Load | None") -> None:
    """Check that every worker has memory for the largest job, since any worker may get it."""
    if largest is not None and memory is not None and largest.bytes > memory:
        raise InputError(f"{worker} has {memory / _GIB:,.1f} GiB; {largest.said}; allowed: {largest.remedy}")


def worker_report(place: str, cache: str, mark: str, said: str, prefect_api: str) -> WorkerReport:
    """Report what this process is, and what it sees.

    Args:
        place: location of the store, as text that other versions of the code understand.
        said: content of the mark.
    """
    store = open_store(Path(place) if "://" not in place else place, CacheSettings(folder=Path(cache)))
    unseen = _why_unseen(store, Mark(mark, said))
    from fedfisher_core.models.memory import machine_bytes

    # A worker that does not see the store would make one at another location.
    unwritable = "" if unseen else _why_unwritable(store)
    silent = why_unreachable(f"{prefect_api.rstrip('/')}/health", seconds=_PATIENCE_SECONDS)
    return WorkerReport(versions(), unseen, unwritable, silent, machine_bytes())


def _why_unseen(store: Store, mark: Mark) -> str:
    try:
        return "" if store.sees(mark) else "what was put there is not in it; allowed: one that all share"
    except (InputError, OutputError) as error:
        return str(error)


def _why_unwritable(store: Store) -> str:
    try:
        store.prepare()
    except InputError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Guarded:
    """Work that a worker refuses if it differs from the machine that started the run, or sees another store.

    Args:
        wanted: versions on that machine.
        mark: in the store while the run lasts.
    """

    wanted: Mapping[str, str]
    store: Store
    mark: Mark
    work: Callable[[], Any]

    def __call__(self) -> Any:
        """Do the work.

        Raises:
            JobError: names this machine, what it has, and what is allowed; or the error in reading the work.
            JobsFailedError: names this machine where its disk is full.
        """
        worker = f"a Dask worker on {socket.gethostname()}"
        for name, wanted in self.wanted.items():
            if (own := versions().get(name)) != wanted:
                raise JobError(f"{worker} has {name} {own}; allowed: {wanted}", "")
        # A process that saw the mark once sees the store as long as it lives.
        if self.mark not in _SEEN_MARKS:
            if unseen := _why_unseen(self.store, self.mark):
                raise JobError(f"{worker} does not see {self.store.location}: {unseen}", "")
            _SEEN_MARKS.add(self.mark)
        try:
            return self.work()
        except JobsFailedError as error:
            raise JobsFailedError(
                {
                    name: replace(one, reason=f"{worker}: {one.reason}") if one.by_machine else one
                    for name, one in error.failures.items()
                }
            ) from error
        except (ImportError, AttributeError) as error:
            # A job's own errors arrive as text, so these mean that the work could not be read.
            raise JobError(f"{worker} can't read a task: {error}", traceback.format_exc()) from error


@cache
def versions() -> dict[str, str]:
    """Return what must be the same on all machines, so that a job gives the same result on each."""
    plugins = {
        one.name: one.version
        for one in distributions()
        if any(entry.group.startswith("fedfisher.") for entry in one.entry_points)
    }
    return {
        "Python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        **plugins,
        "fedfisher's code": _digest(path for name in _CODE for path in _modules(name)),
    }


def _modules(package: str) -> Iterable[Path]:
    spec = find_spec(package)
    assert spec is not None
    folders = spec.submodule_search_locations or ()
    return sorted(path for folder in folders for path in Path(folder).rglob("*.py"))


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
