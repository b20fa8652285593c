"""Encoding what a client uploads, as a job of the client's side."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from fedfisher_core.client.transport import encode
from fedfisher_core.federation.place import ClientJob, client_name
from fedfisher_core.federation.uploads import PAYLOAD, num_examples, read_statistics
from fedfisher_core.jobs import Numerics
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step
from fedfisher_core.wire.payload import Schema

if TYPE_CHECKING:
    from fedfisher_core.client.bound import BoundStatistic

R = TypeVar("R")


@dataclass(frozen=True)
class SendInputs(Generic[R]):
    """What a client sends.

    Args:
        partition: who holds what.
        statistics: by name, in the order in which they are sent.
    """

    partition: R
    statistics: Mapping[str, R]


@dataclass(frozen=True)
class SendUpload(ClientJob[SendInputs[Artifact]]):
    """Encode a client's upload; methods that send the same in the same format share it.

    Args:
        uploads: the statistics, in their order.
        schema: how the upload is encoded.
        needs: names of the jobs before.
    """

    uploads: tuple["BoundStatistic", ...]
    schema: Schema
    needs: SendInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        names = " and ".join(one.statistic.name for one in self.uploads)
        return f"send {names} as {self.schema.digest().hex()[:6]}, {client_name(self.client)}: {self.place.label}"

    @property
    def batch(self) -> str:
        """See `Job.batch`."""
        return f"send uploads of {client_name(self.client)}: {self.place.label}"

    @property
    def numerics(self) -> Numerics:
        """See `Job.numerics`: clients encode on the processor."""
        return Numerics(threads=self.place.numerics.threads)

    def step(self, inputs: SendInputs[Artifact]) -> Step:
        """See `Job.step`."""
        return Step(
            kind="payloads",
            code=source_digest(type(self), *(one.statistic for one in self.uploads), *codecs_of(self.schema)),
            settings={
                "schema": self.schema.digest().hex(),
                "num_examples": num_examples(inputs.partition, self.client),
                **self.numerics.described(),
            },
            inputs={name: artifact.digest for name, artifact in inputs.statistics.items()},
        )

    def compute(self, inputs: SendInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        sent = list(read_statistics(self.uploads, self.place.spec, inputs.statistics).values())
        begun = time.perf_counter()
        payload = encode(self.schema, sent, num_examples=num_examples(inputs.partition, self.client))
        return Content(files={PAYLOAD: payload}, timings={"seconds": time.perf_counter() - begun})


def codecs_of(schema: Schema) -> list[type]:
    """List the classes that encode an upload and decode it."""
    return [type(section.codec) for section in schema.sections]
