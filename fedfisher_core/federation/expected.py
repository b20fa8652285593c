"""What federations are expected to send, known before any work."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedfisher_core.engine.job import Job
from fedfisher_core.federation.aggregating import Aggregation
from fedfisher_core.federation.aggregation import AggregateUploads


@dataclass(frozen=True)
class ExpectedUploads:
    """The uploads of all clients to all methods.

    Args:
        count: how many payloads methods receive.
        bits: the most that these payloads take together.
        largest: the most bits of one of them.
        uncounted: clients' parts in secure sums, whose bits are counted while they run.
    """

    count: int
    bits: int
    largest: int
    uncounted: int


def expected_uploads(jobs: Iterable[Job[Any]]) -> ExpectedUploads:
    """Add up the uploads of all aggregations among some jobs; pooled data is no upload."""
    found = [job for job in jobs if isinstance(job, Aggregation) and not job.configured.method.pooled]
    sizes = [(len(job.needs.clients), job.schema.bits) for job in found if isinstance(job, AggregateUploads)]
    return ExpectedUploads(
        count=sum(clients for clients, _ in sizes),
        bits=sum(clients * bits for clients, bits in sizes),
        largest=max((bits for _, bits in sizes), default=0),
        uncounted=sum(len(job.needs.clients) for job in found if not isinstance(job, AggregateUploads)),
    )
