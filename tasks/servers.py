"""Tasks of the servers' side."""

from collections.abc import Callable

from tasks.options import step


@step(run_name="{title}")
def aggregate(title: str, work: Callable[[], None]) -> None:
    """Aggregate the uploads of a federation by one method."""
    work()


@step(run_name="{title}")
def evaluate(title: str, work: Callable[[], None]) -> None:
    """Measure a global network on the test examples."""
    work()


@step(run_name="{title}")
def compare(title: str, work: Callable[[], None]) -> None:
    """Compare a global network with those of the clients."""
    work()
