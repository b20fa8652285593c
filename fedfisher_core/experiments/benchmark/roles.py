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
    """One shot too (Guha et al. 2019), but every prediction takes several networks, mostly those of all clients."""

    REFERENCE = "reference"
    """No one-shot method: a bound or a baseline of another kind."""


def method_of(row: Row) -> str:
    """Name the method of a row, whatever its label is."""
    return str(row.method_settings.get("method", row.method))


def role_of(row: Row) -> Role:
    """Tell what a row is.

    Args:
        row: of any method. An ensemble predicts with several networks; where they were not counted, or there is one
            client, its method's name has the word.

    Returns:
        Its role.
    """
    if is_local_mean(row):
        return Role.REFERENCE
    if networks_of(row) > 1 or _is_named_ensemble(row):
        return Role.ENSEMBLE
    return Role.REFERENCE if row.reference else Role.ONE_NETWORK


def is_local_mean(row: Row) -> bool:
    """Tell whether a row is the mean over the clients' own models, each measured by itself."""
    return method_of(row) == _LOCAL_MEAN


def networks_of(row: Row) -> int:
    """Count the networks that one prediction takes."""
    if is_local_mean(row):
        return 1
    if row.num_networks is not None:
        return row.num_networks
    sending = row.cohort or row.num_clients - (row.unseen_clients or 0)
    return sending - len(row.failed_clients) if _is_named_ensemble(row) else 1


def _is_named_ensemble(row: Row) -> bool:
    return row.reference and _ENSEMBLE in method_of(row).split("_")
