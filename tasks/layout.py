"""MLflow's own command for databases, in a process that ends with whoever started it, however that ends."""

import os
import sys
import threading
from pathlib import Path
from subprocess import CompletedProcess, run


def upgrade(path: Path) -> CompletedProcess[str]:
    """Have MLflow bring a SQLite file to its newest layout.

    Args:
        path: the file; made where missing.

    Returns:
        How the command ended, and what it said.
    """
    read, write = os.pipe()
    try:
        command = [sys.executable, "-m", __name__, "db", "upgrade", f"sqlite:///{path}"]
        return run(command, stdin=read, capture_output=True, text=True, check=False)
    finally:
        os.close(read)
        os.close(write)


def _end_with_input() -> None:
    """Wait for the end of whoever alone can write to the standard input."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    from mlflow.cli import cli

    cli()
