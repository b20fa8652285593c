"""Encoding what a client uploads, as a job of the client's side."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from fedfisher_core.client.bound import BoundStatistic
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.transport import encode, upload_schema
from fedfisher_core.federation.partition import label_counts
from fedfisher_core.federation.place import POOLED, Place, client_name
from fedfisher_core.federation.statistics import TENSORS
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from fedfisher_core.store import Artifact, Content, Step, read_tensors
from fedfisher_core.wire.payload import Schema

R = TypeVar("R")

PAYLOAD = "payload.bin"


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
class SendUpload(Job[SendInputs[Artifact]]):
    """Encode a client's upload; methods that send the same in the same format share it.

    Args:
        place: the federation.
        client: its number, or POOLED.
        uploads: the statistics, in their order.
        wire: what an upload may cost, and how it is encoded.
        needs: names of the jobs before.
    """

    place: Place
    client: int
    uploads: tuple[BoundStatistic, ...]
    wire: WireSettings
    needs: SendInputs[str]

    @property
    def schema(self) -> Schema:
        """How the upload is encoded."""
        return schema_of(self.uploads, self.place.spec, self.wire)

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

    @property
    def may_be_lost(self) -> bool:
        """See `Job.may_be_lost`."""
        return self.client != POOLED

    def step(self, inputs: SendInputs[Artifact]) -> Step:
        """See `Job.step`."""
        return Step(
            kind="payloads",
            version=1,
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


def schema_of(uploads: tuple[BoundStatistic, ...], spec: ModelSpec, wire: WireSettings) -> Schema:
    """Choose how statistics are encoded, once a process; see `upload_schema`."""
    return _schema(uploads, spec, wire.budget, wire.format, wire.factor_bits)


@cache
def _schema(uploads: tuple[BoundStatistic, ...], spec: ModelSpec, *encoding: Any) -> Schema:
    budget, family, factor_bits = encoding
    return upload_schema(uploads, spec, WireSettings(budget=budget, format=family, factor_bits=factor_bits))


def read_statistics(
    uploads: tuple[BoundStatistic, ...], spec: ModelSpec, stored: Mapping[str, Artifact]
) -> dict[type[Statistic], Statistic]:
    """Read a client's statistics; files order tensors by name, the wire orders them as the statistic does.

    Args:
        uploads: the statistics.
        spec: the network that the client trained.
        stored: their artifacts, by name.

    Returns:
        Each statistic.
    """
    found: dict[type[Statistic], Statistic] = {}
    for one in uploads:
        tensors = read_tensors(stored[one.statistic.name], TENSORS)
        found[one.statistic] = one.statistic.of({name: tensors[name] for name in one.shapes(spec)})
    return found


def num_examples(partition: Artifact, client: int) -> int:
    """Count a client's examples.

    Args:
        partition: who holds what.
        client: its number, or POOLED.

    Returns:
        n_i.
    """
    counts = [sum(one) for one in label_counts(partition)]
    return sum(counts) if client == POOLED else counts[client]
