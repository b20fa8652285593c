"""Tasks that make the data of federations."""

from collections.abc import Callable

from tasks.options import step


@step(run_name="{title}")
def decode_data(title: str, work: Callable[[], None]) -> None:
    """Decode the examples of a data set."""
    work()


@step(run_name="{title}")
def split_data(title: str, work: Callable[[], None]) -> None:
    """Split the training examples over clients and server."""
    work()


@step(run_name="{title}")
def extract_features(title: str, work: Callable[[], None]) -> None:
    """Compute the features of all examples by a frozen trunk."""
    work()


@step(run_name="{title}")
def make_start(title: str, work: Callable[[], None]) -> None:
    """Draw or read the weights that clients start from."""
    work()
