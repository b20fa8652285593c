"""Commands of this source tree and of an earlier one, run in turn by the same interpreter."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
_FEDFISHER = "import sys; sys.argv[0] = 'fedfisher'; from flows.cli import main; main()"


class HistoryError(Exception):
    """The earlier tree can't be had."""


@dataclass(frozen=True)
class Spent:
    """Seconds of a command, by the clock and of processor time, user and system.

    Processes that it has started and waited for count, as the temporary Prefect server does.
    """

    wall: float
    processor: float


@dataclass(frozen=True)
class Tree:
    """The source code of the project at one time.

    Args:
        root: its folder.
        home: where Prefect keeps what it knows of this tree's runs.
        data: the folder of the data sets.
    """

    root: Path
    home: Path
    data: Path

    def fedfisher(self, folder: Path, *arguments: str) -> Spent:
        """Run the `fedfisher` command.

        Args:
            folder: where it runs.
            arguments: of the command line.

        Returns:
            What it took.
        """
        return self.python(folder, _FEDFISHER, *arguments)[0]

    def python(self, folder: Path, code: str, *arguments: str) -> tuple[Spent, str]:
        """Run Python with the tree's packages.

        Args:
            folder: where it runs; made if it is missing.
            code: the program.
            arguments: of the program.

        Returns:
            What it took, and what it printed.

        Raises:
            subprocess.CalledProcessError: it failed; its last messages are printed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", code, *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
        environment |= {
            "PYTHONPATH": str(self.root),
            "PREFECT_HOME": str(self.home),
            "FEDFISHER_DATA_DIR": str(self.data),
            "OMP_NUM_THREADS": "1",
        }
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as messages:
            begun = time.perf_counter()
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=messages)
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - begun
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            messages.seek(0)
            if process.returncode != 0:
                print(messages.read()[-4000:], file=sys.stderr)
                raise subprocess.CalledProcessError(process.returncode, command)
            return Spent(wall, usage.ru_utime + usage.ru_stime), output.read()


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """Check a commit out into a work tree of its own.

    Args:
        commit: its hash.
        folder: where it goes; removed in the end.

    Yields:
        The folder.

    Raises:
        HistoryError: the commit is not there.
    """
    try:
        _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except (OSError, subprocess.CalledProcessError) as error:
        raise HistoryError(f"{HERE} has no commit {commit}: this needs a git clone with the whole history") from error
    _git("worktree", "add", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(HERE), *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
