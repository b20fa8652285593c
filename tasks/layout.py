"""MLflow's own command for databases, in a process that ends with whoever started it, however that ends."""

import os
import sys
from pathlib import Path
from subprocess import CompletedProcess, run

from tasks.lifeline import end_with_input


def upgrade(path: Path) -> CompletedProcess[str]:
    """Have MLflow bring a SQLite file to its newest layout.

    Args:
        path: the file; made where missing.

    Returns:
        How the command ended, and what it said.
    """
    read, write = os.pipe()
    try:
        command = [sys.executable, "-m", __name__, "upgrade", f"sqlite:///{path}"]
        return run(command, stdin=read, capture_output=True, text=True, check=False)
    finally:
        os.close(read)
        os.close(write)


if __name__ == "__main__":
    end_with_input()
    # Nothing waits for it before the first results are there.
    os.nice(5)
    # The group of `mlflow db` alone: all of MLflow's commands take twice as long to load.
    from mlflow.db import commands

    commands()
