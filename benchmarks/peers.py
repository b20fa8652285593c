"""Programs of others that do the same federation as a command of this project, and what all of their processes hold."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.held import clients_data
from benchmarks.trees import HERE

FLOWER = ("flwr[simulation]==1.41.0", "ray==2.55.1", f"torch=={torch.__version__.partition('+')[0]}", "numpy")
FLOWER_HOME = Path.home() / ".cache" / "fedfisher" / "flower"
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
_SECONDS_BETWEEN = 0.5


@dataclass(frozen=True)
class Peer:
    """A program of others.

    Args:
        python: the interpreter that has what it needs.
        module: of this folder; it has a function `run`, and finds the fields of `bare.Options` in BARE_OPTIONS.
    """

    python: Path
    module: str

    def run(self, options: dict[str, Any]) -> float:
        """Run it.

        Args:
            options: the fields of `bare.Options`.

        Returns:
            The accuracy of the last network, in percent.

        Raises:
            subprocess.CalledProcessError: it failed; its last messages are printed.
        """
        told = {"BARE_OPTIONS": json.dumps(options), "PYTHONPATH": str(HERE)}
        command = [str(self.python), "-c", f"from benchmarks.{self.module} import run; run()"]
        done = subprocess.run(command, env=os.environ | _QUIET | told, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr[-4000:], file=sys.stderr)
            done.check_returncode()
        (line,) = (one for one in done.stdout.splitlines() if one.startswith("RESULT "))
        return float(json.loads(line.removeprefix("RESULT "))["accuracy"])


def flower(environment: Path) -> Peer:
    """Find Flower's simulation; its environment is made where it is missing.

    Args:
        environment: a folder that is kept.

    Returns:
        The peer.
    """
    python = environment / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(FLOWER)} into {environment}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *FLOWER], check=True)
    return Peer(python, "flower_app")


def write_examples(settings: dict[str, Any], store: Path, folder: Path) -> Path:
    """Write what each client holds where a peer finds it.

    Args:
        settings: of this project's side.
        store: gets its decoded data and their split.
        folder: where the file goes.

    Returns:
        The file.
    """
    data = clients_data(settings, store)
    held, test = data.clients, data.test
    np.savez(
        folder / "examples.npz",
        inputs=torch.cat([own.inputs for own in held]).numpy(),
        labels=torch.cat([own.labels for own in held]).numpy(),
        ends=np.cumsum([len(own) for own in held]),
        test_inputs=test.inputs.numpy(),
        test_labels=test.labels.numpy(),
    )
    return folder / "examples.npz"


@contextmanager
def watched() -> Iterator[Callable[[], int]]:
    """Watch the memory of all processes that this one starts.

    Yields:
        Gives the most bytes that they held at once, what they share counted once (PSS).
    """
    most, ended = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(_SECONDS_BETWEEN):
            most = max(most, _held())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: most
    finally:
        ended.set()
        watcher.join()


def _held() -> int:
    held = 0
    for process in psutil.Process().children(recursive=True):
        # It may have ended since it was listed.
        with suppress(psutil.NoSuchProcess):
            held += process.memory_full_info().pss
    return held
