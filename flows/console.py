"""What the terminal shows while a flow runs."""

import logging
import sys


class _OneErrorOnce(logging.Filter):
    """Drops what Prefect says of errors, all of which the command reports itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        dropped = ("Finished in state", "Task run exceeded", "Crash detected")
        return not (record.exc_info or record.getMessage().startswith(dropped))


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
