"""Encoding what a client uploads, as a job of the client's side."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from fedfisher_core.client.transport import encode
from fedfisher_core.federation.inputs import R
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import ClientJob
from fedfisher_core.federation.uploads import PAYLOAD, read_statistics
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step
from fedfisher_core.wire.payload import Schema

if TYPE_CHECKING:
    from fedfisher_core.client.bound import BoundStatistic


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
    """

    uploads: tuple["BoundStatistic", ...]
    schema: Schema

    @property
    def follows(self) -> bool:
        """See `Job.follows`."""
        return True

    def step(self, inputs: SendInputs[Artifact]) -> Step:
        """See `Job.step`."""
        return Step(
            kind="payloads",
            code=source_digest(type(self), *(one.statistic for one in self.uploads), *codecs_of(self.schema)),
            settings={
                "schema": self.schema.digest().hex(),
                "num_examples": len(held_by(inputs.partition, self.client)),
                **self.numerics.described(),
            },
            inputs={name: artifact.digest for name, artifact in inputs.statistics.items()},
        )

    def compute(self, inputs: SendInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        sent = list(read_statistics(self.uploads, self.place.spec, inputs.statistics).values())
        count = len(held_by(inputs.partition, self.client))
        begun = time.perf_counter()
        payload = encode(self.schema, sent, num_examples=count)
        return Content(files={PAYLOAD: payload}, timings={"seconds": time.perf_counter() - begun})


def codecs_of(schema: Schema) -> list[type]:
    """List the classes that encode an upload and decode it."""
    return [type(section.codec) for section in schema.sections]
