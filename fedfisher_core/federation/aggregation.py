"""Aggregating the uploads of one federation by one method."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedfisher_core.client.transport import StoredUploads
from fedfisher_core.client.upload import Upload
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.global_models import Traffic
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.sending import codecs_of
from fedfisher_core.federation.uploads import PAYLOAD
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import models
from fedfisher_core.store import Artifact, Step, path_of
from fedfisher_core.wire.formula import formula_bits
from fedfisher_core.wire.payload import Schema


@dataclass(frozen=True)
class AggregateUploads(Aggregation):
    """Aggregate uploads that the server receives one by one, each under the name PAYLOAD.

    Args:
        schema: how they are encoded.
    """

    schema: Schema

    def step(self, inputs: AggregationInputs[Artifact]) -> Step:
        """See `Job.step`."""
        method, family = self.bound.method, models.get(self.place.spec.name)
        sources = (method.function, family, *method.uploads, *codecs_of(self.schema))
        return self._step(inputs, sources, wire=self.schema.digest().hex())

    def aggregate(
        self, server: Server, inputs: AggregationInputs[Artifact]
    ) -> tuple[Aggregate, Traffic, dict[str, float]]:
        """See `Aggregation.aggregate`."""
        method, clients = self.bound.method, sorted(inputs.clients)
        paths = [path_of(inputs.clients[client].uploads[PAYLOAD], PAYLOAD) for client in clients]
        counts = [len(held_by(inputs.partition, client)) for client in clients]
        stored = StoredUploads(paths, counts, self.schema, method.uploads, self.place.device)

        def work() -> Aggregate:
            return self.bound(server, self.received(server, inputs, stored))

        made, timings = self._timed(work)
        if method.pooled:
            # To train on all data is to send all data: the examples and labels themselves, which stay at the server.
            dataset = load_data(inputs.data)
            each = dataset.spec.inputs.bits + (dataset.spec.classes - 1).bit_length()
            bits = sum(counts) * each if self.turn == 1 else 0
            return made, self._traffic(server, made, inputs, bits, bits), timings
        upload_bits = 8 * sum(path.stat().st_size for path in paths)
        formula = len(paths) * formula_bits(self.schema)
        return made, self._traffic(server, made, inputs, upload_bits, formula), timings

    def received(self, server: Server, inputs: AggregationInputs[Artifact], stored: StoredUploads) -> Sequence[Upload]:
        """Hand uploads to the method: one at a time where it makes do with sums, and else all at once.

        Args:
            server: what it holds.
            inputs: what clients have ready.
            stored: the uploads, in the order of the clients' numbers.

        Returns:
            The uploads.
        """
        if self.bound.method.streamed:
            return stored
        return [Upload(one.num_examples, dict(one.statistics)) for one in stored]
