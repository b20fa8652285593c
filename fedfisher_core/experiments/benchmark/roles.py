"""What a row of a benchmark is: one network in one shot, an ensemble in one shot, or a reference."""

from enum import StrEnum

from fedfisher_core.experiments.benchmark.rows import Row

_LOCAL_MEAN = "local_mean"
_ENSEMBLE = "ensemble"


class Role(StrEnum):
    """What a row is, in the order in which tables show them."""

    ONE_NETWORK = "one network"
    """One shot, and one network that all clients get: these are compared and ranked."""

    ENSEMBLE = "ensemble"
    """One shot too (Guha et al. 2019), but every prediction takes the networks of all clients."""

    REFERENCE = "reference"
    """No one-shot method: a bound or a baseline of another kind."""


def method_of(row: Row) -> str:
    """Name the method of a row, whatever its label is."""
    return str(row.method_settings.get("method", row.method))


def role_of(row: Row) -> Role:
    """Tell what a row is.

    Args:
        row: of any method; an ensemble is one that is not compared and has the word in its method's name.

    Returns:
        Its role.
    """
    if not row.reference:
        return Role.ONE_NETWORK
    return Role.ENSEMBLE if _ENSEMBLE in method_of(row).split("_") else Role.REFERENCE


def is_local_mean(row: Row) -> bool:
    """Tell whether a row is the mean over the clients' own models, each measured by itself."""
    return method_of(row) == _LOCAL_MEAN


def networks_of(row: Row) -> int:
    """Count the networks that one prediction takes."""
    sending = row.cohort or row.num_clients - (row.unseen_clients or 0)
    return sending - len(row.failed_clients) if role_of(row) is Role.ENSEMBLE else 1
