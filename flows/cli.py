"""The `fedfisher` command."""

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedfisher_core.errors import DivergedClientError, IncompleteError, InputError, OutputError
from flows import running
from flows.output import nobody_reads, print_report
from flows.stopping import leave, told_to_stop
from tasks.cycles import spare_the_end
from tasks.lifeline import end_with_parent

if TYPE_CHECKING:
    from fedfisher_core.settings import ExperimentSettings

# Nothing here phones home, and Prefect reports what goes wrong rather than every task that does not. A temporary server
# that is stopped in the middle of writing down an event tells of it in a hundred lines; no result rests on that event.
_ENVIRONMENT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "DVC_NO_ANALYTICS": "true",
    # What it says of a command that was stopped is that it cleans up.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}


_PARAMS = Path("params.yaml")
# What DVC tells the commands that it starts, and forgets when it is killed.
_DVC_STAGE = "DVC_STAGE"
# A user's own results come before the reports that someone chose to commit.
_REPORTS = (Path("results"), Path("reports"))
_LEADERBOARD = Path("results/leaderboard")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit.

    The code is 0 for complete success, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM, and 1 for any other
    failure. If jobs of a run failed, it is 2 where bad input or diverged clients explain them all, and 1 elsewhere.

    Args:
        arguments: of the command line; by default the process's own.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if sys.stderr is None:
        # It was closed, which libraries that write to it do not expect.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - it stays open until the end.
    spare_the_end()
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
        if sys.stdout is not None:
            # What nobody reads any more is noticed here, and not at Python's end.
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        leave(stop)
    except Exception as error:
        # What a stop has become in foreign code is no failure.
        if (stopped := told_to_stop()) is not None:
            leave(stopped)
        if isinstance(error, BrokenPipeError) and nobody_reads():
            sys.exit(1)
        code = _code_for(error)
        if code is None:
            raise
        print(f"fedfisher: {error}", file=sys.stderr)
        sys.exit(code)


def _code_for(error: Exception) -> int | None:
    """The exit code for what is said in one line; None for what no one foresaw."""
    match error:
        case InputError() | DivergedClientError():
            return 2
        case IncompleteError():
            return running.code_of([error])
        case OutputError():
            return 1
        case _:
            return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedfisher", description="A benchmark of one-shot federated learning")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run experiments, or what is left of them; exits with 1 if jobs failed")
    run.add_argument("config", nargs="*", type=Path, default=[_PARAMS], help=f"settings (default: {_PARAMS})")
    _add_overrides(run)
    run.set_defaults(command=_run)

    stage = commands.add_parser("stage", help="run one stage of the DVC pipeline")
    stage.add_argument("stage", help="such as clients, aggregates or report")
    _add_config(stage)
    stage.set_defaults(command=_stage)

    report = commands.add_parser("report", help="print the table of a finished benchmark and where its report is")
    report.add_argument("name", help="the benchmark's name, a folder of the reports")
    report.add_argument("--reports", type=Path, help="folder of reports (default: results, then reports)")
    report.set_defaults(command=_report)

    board = commands.add_parser("leaderboard", help="make one page, table and MLflow run of all reports")
    board.add_argument(
        "--reports", type=Path, nargs="+", metavar="FOLDER", help="folders of reports (default: results, then reports)"
    )
    board.add_argument("--out", type=Path, default=_LEADERBOARD, help=f"folder to write (default: {_LEADERBOARD})")
    _add_config(board)
    board.set_defaults(command=_leaderboard)

    for what in ("methods", "objectives", "optimisers", "datasets", "models"):
        listing = commands.add_parser(what, help=f"list the {what} that settings can name")
        listing.add_argument("--json", action="store_true", help="print JSON")
        listing.set_defaults(command=_list, what=what)

    data = commands.add_parser("data", help="manage data sets").add_subparsers(required=True, metavar="ACTION")
    fetch = data.add_parser("fetch", help="put a data set into the folder `data`")
    fetch.add_argument("name")
    fetch.set_defaults(command=_fetch)

    store = commands.add_parser("store", help="manage artifacts").add_subparsers(required=True, metavar="ACTION")
    prune = store.add_parser("prune", help="remove artifacts that no results and no report rest on")
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    prune.add_argument("--yes", action="store_true", help="do not ask, even where most of the store would be removed")
    _add_config(prune)
    prune.set_defaults(command=_prune)

    ui = commands.add_parser("ui", help="browse the recorded runs in MLflow")
    ui.add_argument("--port", type=_port, default=5000, help="from 1 to 65535 (default: 5000)")
    _add_config(ui)
    ui.set_defaults(command=_ui)

    doctor = commands.add_parser("doctor", help="say what is installed, found and reachable")
    _add_config(doctor)
    doctor.set_defaults(command=_doctor)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", type=Path, default=_PARAMS, help=f"settings (default: {_PARAMS})")
    _add_overrides(parser)


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="override a setting"
    )


def _settings(options: argparse.Namespace) -> "ExperimentSettings":
    from fedfisher_core.experiments.loading import load

    return load(options.config, options.overrides)


def _run(options: argparse.Namespace) -> None:
    incomplete = running.run(options.config, options.overrides)
    if incomplete:
        sys.exit(running.code_of(incomplete))


def _stage(options: argparse.Namespace) -> None:
    if _DVC_STAGE in os.environ:
        end_with_parent()
    running.run_stage(options.config, options.overrides, options.stage)


def _report(options: argparse.Namespace) -> None:
    from fedfisher_core.reporting.rows import RESULTS

    folders = _REPORTS if options.reports is None else (options.reports,)
    found = [folder / options.name for folder in folders if (folder / options.name / RESULTS).is_file()]
    if not found:
        known = sorted({path.parent.name for folder in folders for path in folder.glob(f"*/{RESULTS}")})
        where = " and ".join(map(str, folders))
        raise InputError(f"no report {options.name!r} in {where}; allowed: {', '.join(known) or 'none yet'}")
    print_report(found[0])


def _leaderboard(options: argparse.Namespace) -> None:
    tracking = _settings(options).tracking
    from fedfisher_core.reporting.tables import as_text
    from flows.leaderboard import make_leaderboard

    folders = options.reports or [folder for folder in _REPORTS if folder.is_dir()]
    print(as_text(make_leaderboard(folders, options.out, tracking)))
    print(f"\nleaderboard: {options.out / 'index.html'}")
    print(f"MLflow: {tracking.mlflow}, browse it with `fedfisher ui`")


def _list(options: argparse.Namespace) -> None:
    from flows import listings

    listed = {
        "methods": listings.methods,
        "objectives": listings.objectives,
        "optimisers": listings.optimisers,
        "datasets": listings.datasets,
        "models": listings.models,
    }
    entries = listed[options.what]()
    print(json.dumps(entries, indent=2) if options.json else listings.as_text(entries))


def _fetch(options: argparse.Namespace) -> None:
    from fedfisher_core.data.fetch import fetch

    print(fetch(options.name))


def _prune(options: argparse.Namespace) -> None:
    from flows.pruning import find_unused, remove_unused

    settings = _settings(options)
    found = find_unused(settings)
    if options.dry_run:
        print(*found.sizes, f"would remove {found}", sep="\n")
        return
    if found.is_most and not options.yes and not _agrees(f"most of {settings.run.store} would be removed: {found}"):
        print("nothing was removed")
        return
    removed = remove_unused(settings, found)
    print(*removed.sizes, f"removed {removed}", sep="\n")


def _agrees(warning: str) -> bool:
    if not sys.stdin.isatty():
        raise InputError(f"{warning}; confirm with --yes")
    return input(f"{warning}. Remove? [y/N] ").strip().lower() in ("y", "yes")


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else 0
    if not 1 <= port < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: 1 to 65535")
    return port


def _ui(options: argparse.Namespace) -> None:
    tracking = _settings(options).tracking
    if tracking.database is None:
        print(f"runs are recorded at {tracking.mlflow}: open it in a browser")
        return
    from tasks.tracking import prepare_tracking

    prepare_tracking(tracking)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind(("127.0.0.1", options.port))
        except OSError as error:
            raise InputError(f"--port={options.port} can't be had: {error.strerror}; allowed: another") from error
    # MLflow's job workers take seconds to start and serve nothing that is shown here.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "ui",
        "--backend-store-uri",
        tracking.mlflow,
        "--port",
        str(options.port),
    ]
    os.execv(sys.executable, command)


def _doctor(options: argparse.Namespace) -> None:
    from flows.doctor import examine

    lines, ready = examine(_settings(options))
    print("\n".join(lines))
    if not ready:
        sys.exit(1)


if __name__ == "__main__":
    # A report says what made it.
    sys.argv[0] = "fedfisher"
    main()
