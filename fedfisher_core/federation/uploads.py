"""What clients have ready to send, as jobs read it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.federation.clients import TENSORS
from fedfisher_core.federation.partition import label_counts
from fedfisher_core.federation.place import POOLED
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.store import Artifact, read_tensors

if TYPE_CHECKING:
    from fedfisher_core.client.bound import BoundStatistic

R = TypeVar("R")

PAYLOAD = "payload.bin"


@dataclass(frozen=True)
class Sent(Generic[R]):
    """What a server has of one client; a client that lost any of it is missing in all methods alike.

    Args:
        uploads: what the method needs, by name.
        beside: whatever else the client computes for methods of the same federation.
    """

    uploads: Mapping[str, R]
    beside: tuple[R, ...]


def read_statistics(
    uploads: Iterable["BoundStatistic"], spec: ModelSpec, stored: Mapping[str, Artifact]
) -> dict[type[Statistic], Statistic]:
    """Read a client's statistics; files order tensors by name, the wire orders them as the statistic does.

    Args:
        uploads: the statistics.
        spec: the network that the client trained.
        stored: their artifacts, by name.

    Returns:
        Each statistic.
    """
    found: dict[type[Statistic], Statistic] = {}
    for one in uploads:
        tensors = read_tensors(stored[one.statistic.name], TENSORS)
        found[one.statistic] = one.statistic.of({name: tensors[name] for name in one.shapes(spec)})
    return found


def num_examples(partition: Artifact, client: int) -> int:
    """Count a client's examples.

    Args:
        partition: who holds what.
        client: its number, or POOLED.

    Returns:
        n_i.
    """
    counts = [sum(one) for one in label_counts(partition)]
    return sum(counts) if client == POOLED else counts[client]
