"""Aggregating the uploads of one federation by one method."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fedfisher_core.client.statistic import ServerView
from fedfisher_core.client.transport import StoredUploads
from fedfisher_core.client.upload import Upload
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.downloads import download_bits, start_sent
from fedfisher_core.federation.measuring import Traffic, content_of, server_of, timed
from fedfisher_core.federation.sending import codecs_of
from fedfisher_core.federation.uploads import PAYLOAD, num_examples
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import models
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content
from fedfisher_core.wire.formula import formula_bits
from fedfisher_core.wire.payload import Schema

if TYPE_CHECKING:
    from fedfisher_core.methods.binding import BoundMethod


@dataclass(frozen=True)
class AggregateUploads(Aggregation):
    """Aggregate uploads that the server receives one by one, each under the name PAYLOAD.

    Args:
        schema: how they are encoded.
    """

    schema: Schema

    @property
    def code(self) -> str:
        """See `Aggregation.code`."""
        method, family = self.bound.method, models.get(self.place.cell.model)
        return source_digest(type(self), method.function, family, *method.uploads, *codecs_of(self.schema))

    @property
    def protocol(self) -> dict[str, Any]:
        """See `Aggregation.protocol`."""
        return {"wire": self.schema.digest().hex()}

    def compute(self, inputs: AggregationInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        server = server_of(self.place, inputs.data, inputs.partition, inputs.start)
        clients = sorted(inputs.clients.items())
        payloads = {client: sent.uploads[PAYLOAD].path / PAYLOAD for client, sent in clients}
        uploads = StoredUploads(
            list(payloads.values()),
            [num_examples(inputs.partition, client) for client in payloads],
            self.schema,
            self.bound.method.uploads,
            self.place.device,
        )
        made, timings = timed(self.bound, partial(_aggregate, self.bound, server, uploads), self.place.device)
        traffic = self._traffic(inputs, [path.stat().st_size for path in payloads.values()], made)
        return content_of(self.place, server, made, traffic, timings, data=inputs.data, partition=inputs.partition)

    def _traffic(self, inputs: AggregationInputs[Artifact], sizes: list[int], made: Aggregate) -> Traffic:
        """Bits that all clients send, those of the payloads and those that papers count, and those that they get."""
        pooled = self.bound.method.pooled
        upload, formula = 8 * sum(sizes), len(sizes) * formula_bits(self.schema)
        if pooled:
            # To train on all data is to send all data: the examples and labels themselves.
            dataset = load_data(inputs.data)
            upload = len(dataset.train) * (dataset.spec.inputs.bits + (dataset.spec.classes - 1).bit_length())
            formula = upload
        return Traffic(
            upload_bits=upload,
            upload_bits_formula=formula,
            download_bits=download_bits(self.place, made, pooled=pooled),
            start_sent=start_sent(self.place, pooled=pooled),
        )


def _aggregate(bound: "BoundMethod", server: Server, stored: StoredUploads) -> Aggregate:
    """Decode and aggregate. Methods that make do with sums get one client's tensors at a time."""
    streamed = all(view is ServerView.SUM for view in bound.method.views.values())
    return bound(server, stored if streamed else [Upload(one.num_examples, dict(one.statistics)) for one in stored])
