"""The terminal of a command: the line that was typed, whether the output is still read, and which messages it shows."""

import errno
import logging
import os
import select
import shlex
import sys
from pathlib import Path

from fedfisher_core.engine.errors import printable_lines


def command_line() -> str:
    """Return this process's command, quoted for a shell."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def reader_is_gone() -> bool:
    """Say whether the reader of standard output is gone, as `head` is after its lines; if so, drop the rest."""
    output = select.poll()
    output.register(sys.stdout, select.POLLOUT)
    if not any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0)):
        return False
    drop_output()
    return True


def output_is_full() -> bool:
    """Say whether the disk behind standard output has no space left, by an empty line; if so, drop the rest."""
    try:
        print(flush=True)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        drop_output()
        return True
    return False


def drop_output() -> None:
    """Drop the rest of standard output, which Python would write when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Printable(logging.Formatter):
    """Escapes what a terminal would act on; names of files and errors of libraries may hold such characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


def _is_no_error(record: logging.LogRecord) -> bool:
    """Drop Prefect's messages on errors, which the command reports itself."""
    dropped = ("Finished in state", "Task run exceeded", "Crash detected")
    return not (record.exc_info or record.getMessage().startswith(dropped))


def configure_logging() -> None:
    """Show warnings of the project on standard error, and each error once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable("%(levelname)s: %(message)s"))
    log = logging.getLogger("fedfisher")
    log.handlers = [handler]
    log.propagate = False
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_is_no_error)
