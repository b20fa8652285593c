"""What the server receives from one client, after the network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import torch

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from fedfisher_core.wire import Family, Schema, fedavg_bits, fit, payload

S = TypeVar("S", bound=Statistic)


@dataclass(frozen=True)
class Upload:
    """One client's statistics.

    Args:
        num_examples: how many examples the client holds, n_i.
        statistics: by kind; exactly those that the method declares.
    """

    num_examples: int
    statistics: Mapping[type[Statistic], Statistic]

    def __getitem__(self, kind: type[S]) -> S:
        return cast(S, self.statistics[kind])


def upload_schema(kinds: Sequence[type[Statistic]], spec: ModelSpec, wire: WireSettings) -> Schema:
    """Choose how statistics are encoded, which client and server do alike.

    Args:
        kinds: the statistics, in the order in which they are sent.
        spec: the network that clients train.
        wire: what an upload may cost.

    Returns:
        The schema of one client's payload.

    Raises:
        InputError: the statistics do not fit the budget in this format.
        UnsupportedLayerError: a statistic does not exist for a layer of the network.
    """
    statistics = [kind.wire_spec(spec) for kind in kinds]
    match wire.budget:
        case "none":
            budget = None
        case "fedavg":
            budget = fedavg_bits(statistics)
        case int():
            budget = wire.budget
    return fit(statistics, family=Family(wire.format), budget_bits=budget, factor_bits=wire.factor_bits)


def encode(schema: Schema, statistics: Sequence[Statistic], *, num_examples: int) -> bytes:
    """Write statistics as they cross the network.

    Args:
        schema: how.
        statistics: of one client.
        num_examples: how many examples it holds.

    Returns:
        The payload; its length is the upload's cost.
    """
    return payload.encode(schema, {one.name: one.tensors for one in statistics}, num_examples=num_examples)


def decode(data: bytes, schema: Schema, kinds: Sequence[type[Statistic]], device: torch.device) -> Upload:
    """Read statistics as they arrive.

    Args:
        data: the payload.
        schema: how it was encoded.
        kinds: the statistics that were sent, in their order.
        device: where the tensors go.

    Returns:
        The upload.

    Raises:
        CorruptArtifactError: the payload is cut, changed, or of another schema.
    """
    message = payload.decode(data, schema)
    statistics = {
        kind: kind({key: tensor.to(device) for key, tensor in message.statistics[kind.name].items()}) for kind in kinds
    }
    return Upload(num_examples=message.num_examples, statistics=statistics)
