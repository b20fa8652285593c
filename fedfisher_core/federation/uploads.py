"""What clients have ready to send, how it is encoded, and what a server sends to its clients, counted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Generic

from torch import Tensor

from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.uploads import encode, upload_schema
from fedfisher_core.communication.wire.payload import Schema, bits_of, uncompressed
from fedfisher_core.engine.costs import Stopwatch
from fedfisher_core.engine.store import Artifact, Content, read_tensors
from fedfisher_core.federation.federation import ClientJob, Federation, R
from fedfisher_core.federation.mixed_ranks import cut
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.start import pretrained_of
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings

TENSORS = "tensors.safetensors"
PAYLOAD = "payload.bin"

SEED_BITS = 64
"""Bits of the seed that the server sends where all clients draw the same initial weights."""
SEED = "seed"
NOTHING = "nothing"
MODEL = "model"


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


def schema_of(configured: ConfiguredMethod, spec: ModelSpec) -> Schema:
    """Choose how uploads of a network to a method are encoded, once a process; see `upload_schema`."""
    wire = configured.wire
    return _schema(configured.uploads, spec, wire.budget, wire.format, wire.factor_bits)


@cache
def _schema(uploads: tuple[ConfiguredStatistic, ...], spec: ModelSpec, *encoding: Any) -> Schema:
    budget, family, factor_bits = encoding
    return upload_schema(uploads, spec, WireSettings(budget=budget, format=family, factor_bits=factor_bits))


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
        federation, own = self.federation, self.federation.spec_of(self.client)
        sent = list(read_statistics(self.uploads, federation.spec, inputs.statistics).values())
        if own != federation.spec:
            sent = [cut(one, configured, own) for one, configured in zip(sent, self.uploads, strict=True)]
        count = len(held_by(inputs.partition, self.client))
        watch = Stopwatch(self.numerics.device)
        payload = encode(self.schema, sent, num_examples=count)
        return Content(files={PAYLOAD: payload}, timings=watch.spent().timings())


@dataclass(frozen=True)
class Download:
    """What a server sends in one round, in bits, to all clients together.

    Args:
        start_bits: the weights or the seed that training clients start from.
        start_sent: SEED; MODEL after the first round and for pre-trained weights; NOTHING where every client draws its
            own weights or does not train.
    """

    start_bits: int
    model_bits: int
    start_sent: str


def download(
    federation: Federation,
    made: Aggregate,
    start: Mapping[str, Tensor],
    *,
    configured: ConfiguredMethod,
    round_number: int,
    extra_bits: int,
) -> Download:
    """Count the start, sent to the clients of the round, and the encoded global model, sent to all that may take part.

    A download to an unseen client later is not counted.

    Args:
        extra_bits: what the server sends to each client of the round in addition to the start.
    """
    takers, model_bits = len(federation.cohort(round_number)), len(federation.participants) * _model_bits(made)
    if configured.method.pooled or not configured.method.trains:
        return Download(0, model_bits, NOTHING)
    if round_number > 1:
        return Download(takers * (bits_of(start) + extra_bits), model_bits, MODEL)
    if federation.settings.model.initialisation == "different":
        return Download(0, model_bits, NOTHING)
    if pretrained_of(federation) is not None:
        return Download(takers * bits_of(start), model_bits, MODEL)
    return Download(takers * SEED_BITS, model_bits, SEED)


def _model_bits(made: Aggregate) -> int:
    if made.combine is Combine.MEAN_MEASURE:
        # Every client goes on with its own network.
        return 0
    sections = [uncompressed(f"network_{i}", network) for i, network in enumerate(made.networks)]
    if made.weights is not None:
        sections.append(uncompressed("weights", {"weights": made.weights}))
    if made.combiner is not None:
        sections.append(uncompressed("combiner", made.combiner))
    return Schema(tuple(sections)).bits
