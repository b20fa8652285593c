"""Running experiments from the command line, and as stages of DVC."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fedfisher_core.engine.errors import IncompleteError, InputError, OutputError, printable_lines
from flows.output import print_report
from flows.server import PrefectServer
from flows.stopping import stop_on_sigterm
from tasks.process import loading

if TYPE_CHECKING:
    from prefect import Flow

    from fedfisher_core.settings import ExperimentSettings

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class _Checked:
    """An experiment that can be run, the folder of its report, and whether something is left to do."""

    settings: "ExperimentSettings"
    folder: Path
    is_left: bool


def run(configs: Sequence[Path], overrides: Sequence[str]) -> list[IncompleteError]:
    """Run experiments, or what is left of them, and print their tables. All settings are checked before any work.

    Returns:
        The error of each experiment that is not complete.

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

    incomplete: list[IncompleteError] = []
    with ExitStack() as holds:
        checked = []
        for config, settings in zip(configs, chosen, strict=True):
            with named(config, overrides):
                checked.append(_check(settings, holds))
        for one in checked:
            if one.is_left:
                require_usable(one.settings.tracking)
        for one in checked:
            if one.is_left:
                with loading():
                    _reach(server)
                    from flows.experiment import flow_of

                try:
                    with _needing_prefect(one.settings.name):
                        _on(server, flow_of(one.settings.experiment))(one.settings)
                except IncompleteError as error:
                    print(f"fedfisher: {printable_lines(error)}", file=sys.stderr)
                    incomplete.append(error)
                    if not error.reported:
                        continue
            print_report(one.folder)
            print(f"MLflow: {one.settings.tracking.mlflow}, browse it with `fedfisher ui`")
    return incomplete


def run_stage(config: Path, overrides: Sequence[str]) -> list[IncompleteError]:
    """Run an experiment, and link what its results rest on into the folder that DVC versions if it is complete.

    Raises:
        InputError: the experiment can't be run.
        OutputError: Prefect's server is gone, results were deleted meanwhile, or the folder can't be written.
    """
    incomplete = run([config], overrides)
    if not incomplete:
        from fedfisher_core.experiments.contract import load
        from flows.sharing import link
        from flows.work import prepare

        work = prepare(load(config, overrides))
        link(work.settings.name, work.artifacts())
    return incomplete


def code_of(incomplete: Sequence[IncompleteError]) -> int:
    """Return a command's exit code: 2 where bad input or diverged clients explain all that failed, else 1."""
    return 2 if all(error.by_user for error in incomplete) else 1


def _load() -> None:
    """Load torch and the modules that make plans.

    Torch leaves cycles that hold the frames of its importer. A plan that existed in such a frame would stay in memory.
    """
    with loading():
        importlib.import_module("torch")
        importlib.import_module("flows.work")


def _check(settings: "ExperimentSettings", holds: ExitStack) -> _Checked:
    """Check an experiment, and drop its plan, which is large with many clients; the flow makes it again."""
    from flows.output import command_line
    from flows.work import is_unchanged, prepare

    work = prepare(settings)
    # No other command may delete what the store holds before the flow uses it.
    holds.enter_context(work.store.in_use(command_line()))
    return _Checked(work.settings, work.folder, is_left=work.transients.there or not is_unchanged(work))


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


def _on(server: PrefectServer, flow: "Flow[P, R]") -> Callable[P, R]:
    from flows.records import looked_after

    return looked_after(flow) if server.temporary else flow


@contextmanager
def _needing_prefect(name: str) -> Iterator[None]:
    """Report in one line that Prefect's server is gone; no run goes on without it."""
    from httpx import TransportError

    try:
        yield
    except TransportError as error:
        raise OutputError(
            f"Prefect's API no longer answers ({type(error).__name__}), so the run of {name} has ended; what was "
            "finished is kept and will not be computed again"
        ) from error


def _reach(server: PrefectServer) -> None:
    """Load Prefect, which takes seconds, and wait for its server."""
    from flows.output import configure_logging

    stop_on_sigterm()
    server.find()
    importlib.import_module("flows.experiment")
    if server.temporary:
        # The server takes longer to start than MLflow to load, and the end of the run would wait for MLflow.
        importlib.import_module("mlflow")
    server.wait()
    configure_logging()
