"""Running experiments from the command line, and as stages of DVC."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import (
    DivergedClientError,
    IncompleteError,
    InputError,
    LockedError,
    OutputError,
    UnwritableError,
    printable_lines,
)
from flows.garbage import without_collection
from flows.server import PrefectServer
from flows.stopping import code_of_stop, stop_on_sigterm, told_to_stop

if TYPE_CHECKING:
    from fedfisher_core.settings import ExperimentSettings


@dataclass(frozen=True)
class Finished:
    """An experiment that a command has run.

    Args:
        error: why it is not complete; None where it is.
    """

    settings: "ExperimentSettings"
    error: IncompleteError | None

    @property
    def folder(self) -> Path | None:
        """Folder of the report; None where no job led to a row."""
        return self.settings.run.reports / self.settings.name if self.error is None or self.error.reported else None


def run_files(configs: Sequence[Path], overrides: Sequence[str]) -> Iterator[Finished]:
    """Run experiments, or what is left of them, one after another. All settings are checked before any work.

    Raises:
        InputError: an experiment's settings can't be used, or two name different servers.
        OutputError: Prefect's server is gone.
    """
    from fedfisher_core.experiments.contract import load, named

    chosen = [load(config, overrides) for config in configs]
    _require_own_folders(configs, chosen)
    server = PrefectServer(_prefect_api(chosen))
    if not all((settings.run.reports / settings.name).is_dir() for settings in chosen):
        # Something is left to do, so the server starts while torch loads.
        server.start()
    _load()
    from tasks.tracking import require_usable

    with ExitStack() as holds:
        checked = []
        for config, settings in zip(configs, chosen, strict=True):
            with named(config, overrides):
                checked.append(_check(settings, holds))
        for settings, is_left in checked:
            if is_left:
                require_usable(settings.tracking)
        for settings, is_left in checked:
            yield Finished(settings, _run_flow(settings, server) if is_left else None)


def _run_flow(settings: "ExperimentSettings", server: PrefectServer) -> IncompleteError | None:
    """Run an experiment, and return the error that says why it is not complete; None where it is.

    Raises:
        OutputError: Prefect's server is gone; no run goes on without it.
    """
    with without_collection():
        _connect(server)
        from httpx import HTTPError

        from flows.experiment import flow_of
        from flows.prefect_history import with_run_record

    flow = flow_of(settings.experiment)
    try:
        (with_run_record(flow) if server.temporary else flow)(settings)
    except IncompleteError as error:
        print(f"fedfisher: {printable_lines(error)}", file=sys.stderr)
        return error
    except HTTPError as error:
        raise OutputError(
            f"Prefect's API no longer answers as it should ({type(error).__name__}), so the run of {settings.name} has "
            "ended; what was finished is kept and will not be computed again"
        ) from error
    return None


def code_of_error(error: BaseException) -> int:
    """Return the exit code of a command that an error or a stop ends."""
    stop = error if isinstance(error, KeyboardInterrupt) else told_to_stop()
    if stop is not None:
        return code_of_stop(stop)
    if isinstance(error, IncompleteError):
        return code_of([error])
    by_user = isinstance(error, InputError | DivergedClientError) and not isinstance(
        error, UnwritableError | LockedError
    )
    return 2 if by_user else 1


def code_of(outcomes: Sequence[IncompleteError | None]) -> int:
    """Return a command's exit code: 0 without errors, 2 where bad input or diverged clients explain all, else 1."""
    errors = [error for error in outcomes if error is not None]
    if not errors:
        return 0
    return 2 if all(error.by_user for error in errors) else 1


def _load() -> None:
    """Load torch and the modules that make plans.

    Torch leaves cycles that hold the frames of its importer. A plan that existed in such a frame would stay in memory.
    """
    with without_collection():
        importlib.import_module("torch")
        importlib.import_module("flows.work")


def _check(settings: "ExperimentSettings", holds: ExitStack) -> "tuple[ExperimentSettings, bool]":
    """Check an experiment, and say whether something is left to do.

    Its plan, which is large with many clients, is dropped; the flow makes it again.
    """
    from flows.terminal import command_line
    from flows.work import is_unchanged, prepare

    work = prepare(settings)
    # No other command may delete what the store holds before the flow uses it.
    holds.enter_context(work.store.in_use(command_line()))
    return work.settings, work.transients.there or not is_unchanged(work)


def _require_own_folders(configs: Sequence[Path], chosen: "Sequence[ExperimentSettings]") -> None:
    """Check that no experiment of a command overwrites another's report."""
    found: dict[Path, Path] = {}
    for config, settings in zip(configs, chosen, strict=True):
        folder = settings.run.reports / settings.name
        if folder in found:
            raise InputError(
                f"{config} and {found[folder]}: name={settings.name!r} in both, which is the folder of the report; "
                "allowed in one command: names that differ"
            )
        found[folder] = config


def _prefect_api(chosen: "Sequence[ExperimentSettings]") -> str | None:
    """Return the one Prefect server of all experiments of a command."""
    first, *others = dict.fromkeys(settings.tracking.prefect_api for settings in chosen)
    if others:
        raise InputError(f"tracking.prefect_api={others[0]!r} and {first!r}; allowed in one command: one")
    return first


def _connect(server: PrefectServer) -> None:
    """Load Prefect, which takes seconds, and wait for its server."""
    from flows.terminal import configure_logging

    stop_on_sigterm()
    server.find()
    importlib.import_module("flows.experiment")
    if server.temporary:
        # The server takes longer to start than MLflow to load, and the end of the run would wait for MLflow.
        importlib.import_module("mlflow")
    server.wait()
    configure_logging()
