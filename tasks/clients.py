"""Tasks of the clients' side."""

from collections.abc import Callable

from tasks.options import step


@step(run_name="{title}")
def train_client(title: str, work: Callable[[], None]) -> None:
    """Train one client or several."""
    work()


@step(run_name="{title}")
def compute_statistics(title: str, work: Callable[[], None]) -> None:
    """Compute the statistics of a client: Fishers, moments and others that methods declare."""
    work()


@step(run_name="{title}")
def encode_uploads(title: str, work: Callable[[], None]) -> None:
    """Encode what a client uploads, one payload for each format."""
    work()


@step(run_name="{title}")
def personalise(title: str, work: Callable[[], None]) -> None:
    """Let an unseen client train a global network on its own examples."""
    work()
