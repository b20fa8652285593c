"""Aggregating by secure aggregation: the server learns sums over clients and nothing else."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from fedfisher_core.federation.downloads import download_bits, start_sent
from fedfisher_core.federation.measuring import Traffic, content_of, require_enough, server_of, timed
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.secure import collect_securely, sums_of, vector_bits
from fedfisher_core.federation.uploads import Sent, num_examples, read_statistics
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.models.spec import models
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step

if TYPE_CHECKING:
    from fedfisher_core.methods.binding import BoundMethod

R = TypeVar("R")


@dataclass(frozen=True)
class SecureInputs(Generic[R]):
    """What clients and server have.

    Args:
        data: the decoded data set, for the validation set and for measuring.
        partition: who holds what.
        start: the initial weights of the server.
        clients: by number, their statistics.
    """

    data: R
    partition: R
    start: R
    clients: Mapping[int, Sent[R]]


@dataclass(frozen=True)
class AggregateSecurely(Job[SecureInputs[Artifact]]):
    """Let clients and server carry out the protocol, aggregate the sums, and measure the global model.

    Args:
        place: the federation.
        label: what the settings call the method.
        bound: the method, written in sums, and its settings.
        needs: names of the jobs before.
    """

    place: Place
    label: str
    bound: "BoundMethod"
    needs: SecureInputs[str]

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

    def step(self, inputs: SecureInputs[Artifact]) -> Step:
        """See `Job.step`."""
        method, place, summation = self.bound.method, self.place, self.bound.summation
        assert summation is not None
        seen = {"data": inputs.data.digest, "partition": inputs.partition.digest}
        seen |= {"start": inputs.start.digest}
        for client, sent in inputs.clients.items():
            seen |= {f"client_{client}.{name}": artifact.digest for name, artifact in sent.uploads.items()}
        return Step(
            kind="aggregates",
            code=source_digest(
                type(self), summation.aggregate, summation.terms, models.get(place.cell.model), *method.uploads
            ),
            settings={
                "method": method.name,
                "method_settings": self.bound.dumped_settings(),
                "model": {"name": place.cell.model, "bias": place.settings.model.bias},
                "seed": place.cell.seed,
                "secure_sum": self.bound.wire.secure.model_dump(mode="json"),
                **place.numerics.described(),
            },
            inputs=seen,
        )

    def compute(self, inputs: SecureInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the threshold can't be met, or a client that drops out does not exist.
        """
        server = server_of(self.place, inputs.data, inputs.partition, inputs.start)
        members = sorted(inputs.clients)
        readers = {
            client: partial(read_statistics, self.bound.uploads, self.place.spec, inputs.clients[client].uploads)
            for client in members
        }
        counts = {client: num_examples(inputs.partition, client) for client in members}
        session = self.step(inputs).key.encode()
        begun = time.perf_counter()
        collected = collect_securely(self.bound, self.place.cell, readers, counts, session=session)
        protocol_seconds = time.perf_counter() - begun
        made, timings = timed(
            self.bound,
            lambda: self.bound.of_sums(server, sums_of(collected, self.place.device)),
            self.place.device,
        )
        made = replace(made, details={**made.details, "clients_in_sum": float(len(collected.uploaded))})
        traffic = Traffic(
            upload_bits=8 * collected.upload_bytes,
            upload_bits_formula=vector_bits(collected),
            download_bits=download_bits(self.place, made, pooled=False) + 8 * collected.download_bytes,
            start_sent=start_sent(self.place, pooled=False),
        )
        # The server's part of the protocol is its work; what clients did in it, masking most of all, is theirs.
        timings["seconds"] += protocol_seconds - collected.client_seconds
        timings["client_seconds"] = collected.client_seconds
        return content_of(self.place, server, made, traffic, timings, data=inputs.data, partition=inputs.partition)
