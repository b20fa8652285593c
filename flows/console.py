"""What the terminal shows while a flow runs."""

import logging
import sys

from fedfisher_core.engine.errors import printable_lines


class _Printable(logging.Formatter):
    """Escapes what a terminal would act on; names of files and errors of libraries may hold such characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))


class _OneErrorOnce(logging.Filter):
    """Drops Prefect's messages on errors, which the command reports itself."""

    def filter(self, record: logging.LogRecord) -> bool:
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
        logging.getLogger(name).addFilter(_OneErrorOnce())
