"""What clients have trained and computed and are ready to send, as jobs read it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.store import Artifact, read_tensors

if TYPE_CHECKING:
    # An edit of all that statistics have in common is no reason to train anew.
    from fedfisher_core.client.bound import BoundStatistic
    from fedfisher_core.client.statistic import Statistic

TENSORS = "tensors.safetensors"
PAYLOAD = "payload.bin"


def read_statistics(
    uploads: Iterable["BoundStatistic"], spec: ModelSpec, stored: Mapping[str, Artifact]
) -> "dict[type[Statistic], Statistic]":
    """Read a client's statistics; files order tensors by name, the wire orders them as the statistic does.

    Args:
        uploads: the statistics.
        spec: the network that the client trained.
        stored: their artifacts, by name.

    Returns:
        Each statistic.
    """
    found = {}
    for one in uploads:
        tensors = read_tensors(stored[one.statistic.name], TENSORS)
        found[one.statistic] = one.statistic.of({name: tensors[name] for name in one.shapes(spec)})
    return found
