"""Running experiments, or one stage of one, from the command line."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fedfisher_core.errors import IncompleteError, InputError, OutputError
from flows.output import print_report
from flows.server import PrefectServer
from flows.stopping import stop_on_sigterm
from tasks.cycles import loading

if TYPE_CHECKING:
    from prefect import Flow

    from fedfisher_core.settings import ExperimentSettings

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class _Checked:
    """An experiment that can be run.

    Args:
        settings: its own.
        folder: where its report goes.
        is_left: whether something is left to do.
    """

    settings: "ExperimentSettings"
    folder: Path
    is_left: bool


def run(configs: Sequence[Path], overrides: Sequence[str]) -> list[IncompleteError]:
    """Run experiments, or what is left of them, and print their tables.

    Args:
        configs: their settings; all are checked before any work.
        overrides: settings in the place of theirs, as KEY=VALUE.

    Returns:
        Why experiments are not complete, one entry each.

    Raises:
        InputError: the settings of one do not allow it, or two name different servers.
        OutputError: Prefect's server is gone.
    """
    from fedfisher_core.experiments.loading import load, named

    chosen = [load(config, overrides) for config in configs]
    _require_own_folders(configs, chosen)
    server = PrefectServer(_prefect_api(chosen))
    if not all((settings.run.reports / settings.name).is_dir() for settings in chosen):
        # Something is left to do: the server shall be there when torch is.
        server.start()
    _load()
    from tasks.tracking import prepare_tracking

    incomplete: list[IncompleteError] = []
    with ExitStack() as holds:
        checked = []
        for config, settings in zip(configs, chosen, strict=True):
            with named(config, overrides):
                checked.append(_check(settings, holds))
        beside = ThreadPoolExecutor(max_workers=1)
        for one in checked:
            if one.is_left:
                # Recording waits for it, and says what went wrong; a command that is stopped does not.
                beside.submit(prepare_tracking, one.settings.tracking)
                with loading():
                    _reach(server)
                    from flows.experiment import flow_of

                try:
                    with _needing_prefect(one.settings.name):
                        _on(server, flow_of(one.settings.experiment))(one.settings)
                except IncompleteError as error:
                    print(f"fedfisher: {error}", file=sys.stderr)
                    incomplete.append(error)
                    if not error.reported:
                        continue
            print_report(one.folder)
            print(f"MLflow: {one.settings.tracking.mlflow}, browse it with `fedfisher ui`")
    return incomplete


def run_stage(config: Path, overrides: Sequence[str], stage: str) -> None:
    """Run one stage of an experiment, as DVC has it.

    Args:
        config: its settings.
        overrides: settings in the place of these, as KEY=VALUE.
        stage: its name.

    Raises:
        InputError: the experiment has no such stage, or can't be run.
        OutputError: Prefect's server is gone.
        IncompleteError: jobs have failed.
    """
    from fedfisher_core.experiments.loading import load, named

    settings = load(config, overrides)
    server = PrefectServer(settings.tracking.prefect_api)
    server.start()
    _load()
    from flows.sharing import REPORT
    from flows.work import prepare

    with named(config, overrides):
        stages = [*prepare(settings).plan.stages, REPORT]
    if stage not in stages:
        raise InputError(f"{settings.name} has no stage {stage!r}; allowed: {', '.join(stages)}")
    with loading():
        _reach(server)
        from flows.experiment import stage_flow_of

    with _needing_prefect(settings.name):
        _on(server, stage_flow_of(settings.experiment, stage))(settings)


def code_of(incomplete: Sequence[IncompleteError]) -> int:
    """Say with which code a command exits.

    Args:
        incomplete: why experiments are not complete; at least one.

    Returns:
        2 where bad input or diverged clients explain all that failed, else 1.
    """
    return 2 if all(error.by_user for error in incomplete) else 1


def _load() -> None:
    """Have torch loaded, and what plans are made by.

    Torch leaves cycles that hold the frames of whoever imports it: a plan that was being made would stay for as long as
    they do.
    """
    with loading():
        importlib.import_module("torch")
        importlib.import_module("flows.work")


def _check(settings: "ExperimentSettings", holds: ExitStack) -> _Checked:
    """Check an experiment, and forget its plan again, which the flow makes anew: it is large where clients are many."""
    from flows.invocation import command_line
    from flows.unchanged import is_unchanged
    from flows.work import prepare

    work = prepare(settings)
    # Nobody shall remove what is there before the flow uses it.
    holds.enter_context(work.store.in_use(command_line()))
    return _Checked(work.settings, work.folder, is_left=work.walk.may_shed or not is_unchanged(work))


def _require_own_folders(configs: Sequence[Path], chosen: "Sequence[ExperimentSettings]") -> None:
    """Check that no experiment of a command writes over another's report."""
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
    """The one server of all experiments of a command."""
    first, *others = dict.fromkeys(settings.tracking.prefect_api for settings in chosen)
    if others:
        raise InputError(f"tracking.prefect_api={others[0]!r} beside {first!r}; allowed in one command: one")
    return first


def _on(server: PrefectServer, flow: "Flow[P, R]") -> Callable[P, R]:
    from flows.records import looked_after

    return looked_after(flow) if server.temporary else flow


@contextmanager
def _needing_prefect(name: str) -> Iterator[None]:
    """Say in one line that Prefect's server is gone, without which no run goes on."""
    from httpx import TransportError

    try:
        yield
    except TransportError as error:
        raise OutputError(
            f"Prefect's API no longer answers ({type(error).__name__}), so the run of {name} has ended; what was "
            "finished is kept and will not be computed again"
        ) from error


def _reach(server: PrefectServer) -> None:
    """Have Prefect loaded, which takes seconds, and its server ready."""
    from flows.console import configure_logging

    stop_on_sigterm()
    server.find()
    importlib.import_module("flows.experiment")
    if server.temporary:
        # It starts for longer than MLflow needs, which the end of a run would wait for.
        importlib.import_module("mlflow")
    server.wait()
    configure_logging()
