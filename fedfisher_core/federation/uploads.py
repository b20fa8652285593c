"""What clients have ready to send, and how it is encoded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.uploads import encode
from fedfisher_core.communication.wire.payload import Schema
from fedfisher_core.engine.costs import Stopwatch
from fedfisher_core.engine.store import Artifact, Content, read_tensors
from fedfisher_core.federation.federation import ClientJob
from fedfisher_core.federation.inputs import R
from fedfisher_core.federation.partition import held_by
from fedfisher_core.models.spec import ModelSpec

TENSORS = "tensors.safetensors"
PAYLOAD = "payload.bin"


def read_statistics(
    uploads: Iterable[ConfiguredStatistic], spec: ModelSpec, stored: Mapping[str, Artifact]
) -> dict[type[Statistic], Statistic]:
    """Read a client's statistics, with tensors in the order of the statistic; files order them by name.

    Args:
        stored: the statistics' artifacts, by name.
    """
    found = {}
    for one in uploads:
        tensors = read_tensors(stored[one.statistic.name], TENSORS)
        found[one.statistic] = one.statistic.of({name: tensors[name] for name in one.shapes(spec)})
    return found


@dataclass(frozen=True)
class SendInputs(Generic[R]):
    """What a client sends: statistics by name, in the order of sending."""

    partition: R
    statistics: Mapping[str, R]


@dataclass(frozen=True)
class SendUpload(ClientJob[SendInputs[Artifact]]):
    """Encode a client's upload; methods that send the same statistics in the same format share it."""

    kind: ClassVar[str] = "payloads"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "encode"

    uploads: tuple[ConfiguredStatistic, ...]
    schema: Schema

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        return {"schema": self.schema.digest().hex(), "client": self.client, **self.numerics.described()}

    def compute(self, inputs: SendInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        sent = list(read_statistics(self.uploads, self.federation.spec, inputs.statistics).values())
        count = len(held_by(inputs.partition, self.client))
        watch = Stopwatch(self.numerics.device)
        payload = encode(self.schema, sent, num_examples=count)
        return Content(files={PAYLOAD: payload}, timings=watch.spent().timings())
