"""Aggregating the uploads of one federation by one method."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from fedfisher_core.client.statistic import ServerView
from fedfisher_core.client.transport import StoredUploads
from fedfisher_core.client.upload import Upload
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.downloads import download_bits, start_sent
from fedfisher_core.federation.measuring import Traffic, content_of, require_enough, server_of, timed
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.sending import codecs_of
from fedfisher_core.federation.uploads import PAYLOAD, Sent, num_examples
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import models
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step
from fedfisher_core.wire.formula import formula_bits
from fedfisher_core.wire.payload import Schema

if TYPE_CHECKING:
    from fedfisher_core.methods.binding import BoundMethod

R = TypeVar("R")


@dataclass(frozen=True)
class AggregationInputs(Generic[R]):
    """What a server has.

    Args:
        data: the decoded data set, for the validation set and for measuring.
        partition: who holds what.
        start: the initial weights of the server.
        clients: by number, the payload that crossed the network under the name PAYLOAD.
    """

    data: R
    partition: R
    start: R
    clients: Mapping[int, Sent[R]]


@dataclass(frozen=True)
class AggregateUploads(Job[AggregationInputs[Artifact]]):
    """Aggregate the uploads of clients and measure the global model.

    Args:
        place: the federation.
        label: what the settings call the method.
        bound: the method and its settings.
        schema: how uploads are encoded.
        needs: names of the jobs before.
    """

    place: Place
    label: str
    bound: "BoundMethod"
    schema: Schema
    needs: AggregationInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"{self.label}: {self.place.label}"

    @property
    def numerics(self) -> Numerics:
        """See `Job.numerics`."""
        return self.place.numerics

    def without(self, lost: Mapping[str, Exception]) -> None:
        """See `Job.without`."""
        require_enough(self.place, self.needs.clients, lost)

    def step(self, inputs: AggregationInputs[Artifact]) -> Step:
        """See `Job.step`."""
        method, place = self.bound.method, self.place
        return Step(
            kind="aggregates",
            code=source_digest(
                type(self), method.function, models.get(place.cell.model), *method.uploads, *codecs_of(self.schema)
            ),
            settings={
                "method": method.name,
                "method_settings": self.bound.dumped_settings(),
                "wire": self.schema.digest().hex(),
                "model": {"name": place.cell.model, "bias": place.settings.model.bias},
                "seed": place.cell.seed,
                **place.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "partition": inputs.partition.digest,
                "start": inputs.start.digest,
                **{f"client_{client}": sent.uploads[PAYLOAD].digest for client, sent in inputs.clients.items()},
            },
        )

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
