"""`fedfisher ui`: recorded runs in MLflow."""

import argparse
import os
import socket
import subprocess
import sys
import webbrowser
from typing import TYPE_CHECKING

from fedfisher_core.engine.errors import InputError, OutputError
from flows.cli.options import Commands, add_command, add_config, settings_of

if TYPE_CHECKING:
    from fedfisher_core.settings import ExperimentSettings


def add_commands(commands: Commands) -> None:
    """Add the command."""
    ui = add_command(commands, "ui", "compare an experiment's recorded runs in MLflow", "ui", "ui --port 5001")
    ui.add_argument("--port", type=_port, default=5000, help="from 1 to 65535 (default: 5000)")
    add_config(ui)
    ui.set_defaults(command=_ui)


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else 0
    if not 1 <= port < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: 1 to 65535")
    return port


def _ui(options: argparse.Namespace) -> None:
    from flows.probes import require_mlflow

    settings = settings_of(options)
    require_mlflow(settings.tracking)
    from mlflow import MlflowException

    try:
        if settings.tracking.database is None:
            _open_on_server(settings)
        else:
            _serve(settings, options.port)
    except MlflowException as error:
        said = str(error).partition("\n")[0]
        raise OutputError(f"runs can't be read at {settings.tracking.mlflow}: {said}") from error


def _open_on_server(settings: "ExperimentSettings") -> None:
    """Print the address of the comparison on the server that keeps runs, and open it from a terminal."""
    from tasks.tracking import client_of, comparison_page_of

    tracking = settings.tracking
    place = comparison_page_of(client_of(tracking), settings.name)
    address = f"{tracking.mlflow.rstrip('/')}/{place}"
    _say(settings.name, address, recorded=bool(place))
    if sys.stdout is not None and sys.stdout.isatty():
        webbrowser.open(address)


def _say(name: str, address: str, *, recorded: bool) -> None:
    if not recorded:
        print(f"no run of {name!r} is recorded there yet, so that MLflow opens at all experiments", file=sys.stderr)
    print(f"{name}: {address}", flush=True)


def _serve(settings: "ExperimentSettings", port: int) -> None:
    """Become MLflow's own server of a local database; the comparison is opened from a terminal."""
    from tasks.tracking import client_of, comparison_page_of, lost_figures

    client = client_of(settings.tracking)
    for name, place in lost_figures(client).items():
        print(f"figures of {name!r} are not in {place}: `fedfisher run` records its runs anew", file=sys.stderr)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(f"--port={port} can't be had: {error.strerror}; allowed: another") from error
    place = comparison_page_of(client, settings.name)
    address = f"http://127.0.0.1:{port}/{place}"
    _say(settings.name, address, recorded=bool(place))
    if sys.stdout is not None and sys.stdout.isatty():
        # It runs next to the server, which takes this process's place.
        subprocess.Popen([sys.executable, "-m", "flows.opening", address])
    # MLflow's job workers take seconds to start and serve nothing that is shown here.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "ui",
        "--backend-store-uri",
        settings.tracking.mlflow,
        "--port",
        str(port),
    ]
    os.execv(sys.executable, command)
