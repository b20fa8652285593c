"""Aggregating by secure aggregation: the server learns sums over clients, see `fedfisher_core.secure`."""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs
from fedfisher_core.federation.downloads import download_bits, start_sent
from fedfisher_core.federation.measuring import Traffic, content_of, server_of, timed
from fedfisher_core.federation.secure import collect_securely, sums_of
from fedfisher_core.federation.uploads import num_examples, read_statistics
from fedfisher_core.models.spec import models
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content


@dataclass(frozen=True)
class AggregateSecurely(Aggregation):
    """Let clients and server carry out the protocol, and aggregate the sums; the method is written in sums."""

    @property
    def code(self) -> str:
        """See `Aggregation.code`."""
        method, summation, family = self.bound.method, self.bound.summation, models.get(self.place.cell.model)
        assert summation is not None
        return source_digest(type(self), summation.aggregate, summation.terms, family, *method.uploads)

    @property
    def protocol(self) -> dict[str, Any]:
        """See `Aggregation.protocol`."""
        return {"secure_sum": self.bound.wire.secure.model_dump(mode="json")}

    def compute(self, inputs: AggregationInputs[Artifact]) -> Content:
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
        step = self.step(inputs)
        # Everyone knows the session's name: it must not come from what clients hold, as digests of inputs do.
        session = f"{self.place.label}: {replace(step, inputs={}).key}".encode()
        begun = time.perf_counter()
        collected = collect_securely(
            self.bound, self.place.cell, readers, counts, session=session, private=step.key.encode()
        )
        protocol_seconds = time.perf_counter() - begun
        made, timings = timed(
            self.bound,
            lambda: self.bound.of_sums(server, sums_of(collected, self.place.device)),
            self.place.device,
        )
        learned = {"clients_in_sum": float(len(collected.uploaded)), "clipped_fraction": collected.clipped()}
        made = replace(made, details={**made.details, **learned})
        messages = collected.messages
        traffic = Traffic(
            upload_bits=8 * messages.bytes_sent(),
            upload_bits_formula=messages.formula_bits(collected.terms),
            download_bits=download_bits(self.place, made, pooled=False) + 8 * messages.bytes_received(len(members)),
            start_sent=start_sent(self.place, pooled=False),
        )
        # The server's part of the protocol is its work; what clients did in it, masking most of all, is theirs.
        timings["seconds"] += protocol_seconds - collected.client_seconds
        timings["client_seconds"] = collected.client_seconds
        return content_of(self.place, server, made, traffic, timings, data=inputs.data, partition=inputs.partition)
