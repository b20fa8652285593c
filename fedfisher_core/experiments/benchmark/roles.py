"""The role of a row of a benchmark (one network, ensemble or reference), and which seconds a report compares."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fedfisher_core.experiments.benchmark.rows import Row


@dataclass(frozen=True)
class Seconds:
    """One way to count seconds.

    Args:
        client: field of a row with the clients' seconds.
        server: field of a row with the server's seconds.
        unit: short.
        words: the unit in words.
    """

    client: str
    server: str
    unit: str
    words: str


_OF_PROCESSORS = Seconds("client_processor_seconds", "server_processor_seconds", "CPU s", "seconds of processors")
_ON_CLOCK = Seconds("client_seconds", "server_seconds", "s", "seconds on the clock, which other work makes longer")


def compared_seconds(rows: Iterable[Row]) -> Seconds:
    """Choose which seconds a report compares: those of processors, if every row has them."""
    known = all(None not in (row.client_processor_seconds, row.server_processor_seconds) for row in rows)
    return _OF_PROCESSORS if known else _ON_CLOCK


_LOCAL_MEAN = "local_mean"
_ENSEMBLE = "ensemble"


class Role(StrEnum):
    """The role of a row; tables show roles in this order."""

    ONE_NETWORK = "one network"
    """One shot, and one network for all clients: these are compared and ranked."""

    ENSEMBLE = "ensemble"
    """One shot too (Guha et al. 2019), but a prediction needs several networks, mostly those of all clients."""

    REFERENCE = "reference"
    """A bound, or a baseline that is no one-shot method."""


def method_of(row: Row) -> str:
    """Name the method of a row, which its label need not say."""
    return str(row.method_settings.get("method", row.method))


def role_of(row: Row) -> Role:
    """Find the role of a row.

    An ensemble predicts with several networks. Where they were not counted, or there is one client, the method's name
    says that it is an ensemble.
    """
    if is_local_mean(row):
        return Role.REFERENCE
    if networks_of(row) > 1 or _is_named_ensemble(row):
        return Role.ENSEMBLE
    return Role.REFERENCE if row.reference else Role.ONE_NETWORK


def is_local_mean(row: Row) -> bool:
    """Whether a row is the mean over the clients' own models, each measured alone."""
    return method_of(row) == _LOCAL_MEAN


def networks_of(row: Row) -> int:
    """Count the networks that one prediction needs."""
    if is_local_mean(row):
        return 1
    if row.num_networks is not None:
        return row.num_networks
    sending = row.cohort or row.num_clients - (row.unseen_clients or 0)
    return sending - len(row.failed_clients) if _is_named_ensemble(row) else 1


def _is_named_ensemble(row: Row) -> bool:
    return row.reference and _ENSEMBLE in method_of(row).split("_")
