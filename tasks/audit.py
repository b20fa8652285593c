"""The task that audits differential privacy."""

from collections.abc import Callable

from tasks.options import step


@step(run_name="{title}")
def audit(title: str, work: Callable[[], None]) -> None:
    """Train a client with canaries, and guess which of them were included."""
    work()
