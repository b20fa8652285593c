"""Aggregating the uploads of one federation by one method, which may ask the clients again, and what is sent."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from fedfisher_core.client.uploads import Ask, StoredUploads, Upload, decode
from fedfisher_core.communication.wire.budget import formula_bits
from fedfisher_core.communication.wire.payload import Schema
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.store import Artifact, path_of
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs, Timings
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.global_models import Traffic
from fedfisher_core.federation.mixed_ranks import filled
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.statistics import local_with
from fedfisher_core.federation.uploads import PAYLOAD, schema_of
from fedfisher_core.methods.server import Aggregate, Server

KEPT_BYTES = 2**28
"""A server keeps decoded uploads up to this size in all, even where its method needs only one at a time."""


@dataclass(frozen=True)
class AggregateUploads(Aggregation):
    """Aggregate uploads that the server receives one by one, each under the name PAYLOAD."""

    version: ClassVar[int] = 1

    def schema(self, client: int) -> Schema:
        """How a client's upload is encoded."""
        return schema_of(self.configured, self.federation.spec_of(client))

    def formats(self, clients: Iterable[int]) -> list[tuple[int, Schema]]:
        """How many clients send uploads that are encoded alike, and how."""
        turns = len(self.federation.settings.model.lora.ranks or (0,))
        return [(count, self.schema(turn)) for turn, count in Counter(one % turns for one in clients).items()]

    @property
    def _largest(self) -> Schema:
        """How an upload of the whole network is encoded, which a client of a smaller rank does not send."""
        return schema_of(self.configured, self.federation.spec)

    @property
    def protocol(self) -> dict[str, Any]:
        """See `Aggregation.protocol`."""
        return {"wire": self._largest.digest().hex()}

    def aggregate(self, server: Server, inputs: AggregationInputs[Artifact]) -> tuple[Aggregate, Traffic, Timings]:
        """See `Aggregation.aggregate`."""
        method, clients = self.configured.method, sorted(inputs.clients)
        paths = [path_of(inputs.clients[client].uploads[PAYLOAD], PAYLOAD) for client in clients]
        counts = [len(held_by(inputs.partition, client)) for client in clients]
        readers = [partial(self._decoded, client) for client in clients]
        stored = StoredUploads(paths, counts, readers, method.uploads, self.federation.device)

        def work() -> Aggregate:
            return self.configured(server, self.received(server, inputs, stored))

        made, timings = self._timed(work)
        # A server decodes an upload once. A simulation without room for all decodes again, which is not its work.
        timings = replace(timings, server=timings.server - stored.again)
        if method.pooled:
            # To train on all data, clients send all examples and labels once; they stay at the server.
            dataset = load_data(inputs.data)
            each = dataset.spec.inputs.bits + (dataset.spec.classes - 1).bit_length()
            bits = sum(counts) * each if self.round_number == 1 else 0
            return made, self._traffic(server, made, inputs, bits, bits), timings
        upload_bits = 8 * sum(path.stat().st_size for path in paths)
        formula = sum(count * formula_bits(schema) for count, schema in self.formats(clients))
        asked = len(paths) * made.exchanged_bits
        return made, self._traffic(server, made, inputs, upload_bits + asked, formula + asked, asked), timings

    def received(self, server: Server, inputs: AggregationInputs[Artifact], stored: StoredUploads) -> Sequence[Upload]:
        """Give the method its uploads, in the order of the clients' numbers.

        They are decoded in advance, unless they are large and the method needs one at a time.
        """
        if self.configured.method.streamed and len(stored) * self._largest.decoded_bytes > KEPT_BYTES:
            return stored
        return [Upload(one.num_examples, dict(one.statistics)) for one in stored]

    def _decoded(self, client: int, data: bytes) -> Upload:
        federation, configured = self.federation, self.configured
        upload = decode(data, self.schema(client), configured.method.uploads, federation.device)
        if federation.spec_of(client) == federation.spec:
            return upload
        return filled(upload, configured.uploads, federation.spec)


@dataclass(frozen=True)
class AggregateByAsking(AggregateUploads):
    """Aggregate uploads, and let the method ask clients about their examples."""

    version: ClassVar[int] = 1

    def received(self, server: Server, inputs: AggregationInputs[Artifact], stored: StoredUploads) -> Sequence[Upload]:
        """See `AggregateUploads.received`; the method can ask each client again."""
        uploads = super().received(server, inputs, stored)
        return [
            replace(upload, again=self._asking(server, inputs, client))
            for client, upload in zip(sorted(inputs.clients), uploads, strict=True)
        ]

    def _asking(self, server: Server, inputs: AggregationInputs[Artifact], client: int) -> Ask:
        return lambda network: local_with(network, self.federation, inputs, client, server.generator)


@dataclass(frozen=True)
class ExpectedUploads:
    """The uploads of all clients to all methods.

    Args:
        count: how many payloads methods receive.
        bits: the most that these payloads take together.
        largest: the most bits of one of them.
        uncounted: clients' parts in secure sums, whose bits are counted while they run.
        asking: clients that methods ask again, whose bits are counted while they run.
    """

    count: int
    bits: int
    largest: int
    uncounted: int
    asking: int


def expected_uploads(jobs: Iterable[Job[Any]]) -> ExpectedUploads:
    """Add up the uploads of all aggregations among some jobs; pooled data is no upload."""
    found = [job for job in jobs if isinstance(job, Aggregation) and not job.configured.method.pooled]
    uploads = [one for job in found if isinstance(job, AggregateUploads) for one in job.formats(job.needs.clients)]
    return ExpectedUploads(
        count=sum(clients for clients, _ in uploads),
        bits=sum(clients * schema.bits for clients, schema in uploads),
        largest=max((schema.bits for _, schema in uploads), default=0),
        uncounted=sum(len(job.needs.clients) for job in found if not isinstance(job, AggregateUploads)),
        asking=sum(len(job.needs.clients) for job in found if isinstance(job, AggregateByAsking)),
    )
