"""Aggregating by a reference that asks clients again, after their uploads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.transport import StoredUploads
from fedfisher_core.client.upload import Ask, Upload
from fedfisher_core.federation.aggregating import AggregationInputs
from fedfisher_core.federation.aggregation import AggregateUploads
from fedfisher_core.federation.statistics import local_with
from fedfisher_core.methods.server import Server
from fedfisher_core.store import Artifact


@dataclass(frozen=True)
class AggregateByAsking(AggregateUploads):
    """Aggregate uploads, and have the method's questions answered by clients' examples.

    A job of its own, so that an edit of what computes statistics makes the aggregates of no other method anew.
    """

    def received(self, server: Server, inputs: AggregationInputs[Artifact], stored: StoredUploads) -> Sequence[Upload]:
        """See `AggregateUploads.received`; each client can be asked."""
        uploads = super().received(server, inputs, stored)
        return [
            replace(upload, again=self._asking(server, inputs, client))
            for client, upload in zip(sorted(inputs.clients), uploads, strict=True)
        ]

    def _asking(self, server: Server, inputs: AggregationInputs[Artifact], client: int) -> Ask:
        def ask(statistic: type[Statistic], network: nn.Module) -> Statistic:
            return statistic.compute(local_with(network, self.place, inputs, client, server.generator))

        return ask
