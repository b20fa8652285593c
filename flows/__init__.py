"""Prefect flows that wire the tasks, and the `fedfisher` command."""

# It prepares the environment, which Prefect reads when it is imported.
import tasks  # noqa: F401
