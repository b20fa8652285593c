"""What the server receives from one client, after the network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import torch

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire import Float32, Schema, Section, TensorSpec, payload

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


def encode(statistics: Sequence[Statistic], *, num_examples: int) -> bytes:
    """Write statistics as they cross the network.

    Args:
        statistics: of one client.
        num_examples: how many examples it holds.

    Returns:
        The payload; its length is the upload's cost.
    """
    shapes = {one.name: {key: tensor.shape for key, tensor in one.tensors.items()} for one in statistics}
    tensors = {one.name: one.tensors for one in statistics}
    return payload.encode(_schema(shapes), tensors, num_examples=num_examples)


def decode(data: bytes, kinds: Sequence[type[Statistic]], spec: ModelSpec, device: torch.device) -> Upload:
    """Read statistics as they arrive.

    Args:
        data: the payload.
        kinds: the statistics that were sent, in their order.
        spec: the network that clients train.
        device: where the tensors go.

    Returns:
        The upload.

    Raises:
        CorruptArtifactError: the payload is cut, changed, or of other statistics.
    """
    message = payload.decode(data, _schema({kind.name: kind.shapes(spec) for kind in kinds}))
    statistics = {
        kind: kind({key: tensor.to(device) for key, tensor in message.statistics[kind.name].items()}) for kind in kinds
    }
    return Upload(num_examples=message.num_examples, statistics=statistics)


def _schema(shapes: Mapping[str, Mapping[str, torch.Size]]) -> Schema:
    return Schema(
        tuple(
            Section(statistic, tuple(TensorSpec(name, tuple(shape)) for name, shape in tensors.items()), Float32())
            for statistic, tensors in shapes.items()
        )
    )
