"""What the terminal shows while a flow runs."""

import logging
import sys

from fedfisher_core.errors import DivergedClientError, InputError, OutputError


class _OneErrorOnce(logging.Filter):
    """Drops Prefect's tracebacks of errors that the command reports itself, in one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        finished = record.getMessage().startswith("Finished in state")
        return not (finished or isinstance(error, InputError | DivergedClientError | OutputError))


def configure_logging() -> None:
    """Show warnings of the project on standard error, and each error once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log = logging.getLogger("fedfisher")
    log.handlers = [handler]
    log.propagate = False
    for name in ("mlflow", "alembic", "dvc"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_OneErrorOnce())
