"""Tasks of the privacy attack."""

from collections.abc import Callable

from tasks.options import step


@step(run_name="{title}")
def train_evaluator(title: str, work: Callable[[], None]) -> None:
    """Train the network that judges reconstructed images."""
    work()


@step(run_name="{title}")
def train_prior(title: str, work: Callable[[], None]) -> None:
    """Train the attacker's GAN."""
    work()


@step(run_name="{title}")
def attack(title: str, work: Callable[[], None]) -> None:
    """Reconstruct images of a client from what a method lets the server see."""
    work()


@step(run_name="{title}")
def measure_bounds(title: str, work: Callable[[], None]) -> None:
    """Measure the floors and the ceiling of an attack."""
    work()
