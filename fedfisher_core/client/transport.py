"""How uploads cross the network: what client and server agree on, and both ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import overload

import torch

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.upload import Upload
from fedfisher_core.wire import payload
from fedfisher_core.wire.payload import Schema


class StoredUploads(Sequence[Upload]):
    """Uploads that stay encoded in files until one is looked at; only the last one's tensors are held.

    So whoever goes through the clients one after another needs the memory of one of them.

    Args:
        paths: one payload a client.
        num_examples: how many examples each client holds.
        schema: how the payloads are encoded.
        statistics: those that were sent, in their order.
        device: where the tensors go.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        num_examples: Sequence[int],
        schema: Schema,
        statistics: Sequence[type[Statistic]],
        device: torch.device,
    ) -> None:
        self._paths = paths
        self._num_examples = num_examples
        self._schema = schema
        self._statistics = statistics
        self._device = device
        self._last: tuple[int, Upload] | None = None

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Upload: ...

    @overload
    def __getitem__(self, index: slice) -> list[Upload]: ...

    def __getitem__(self, index: int | slice) -> Upload | list[Upload]:
        if isinstance(index, slice):
            return [self[one] for one in range(len(self))[index]]
        place = range(len(self))[index]
        return Upload(self._num_examples[place], _Deferred(self._statistics, partial(self._read, place)))

    def _read(self, index: int) -> Mapping[type[Statistic], Statistic]:
        if self._last is None or self._last[0] != index:
            self._last = None
            data = self._paths[index].read_bytes()
            self._last = (index, decode(data, self._schema, self._statistics, self._device))
        return self._last[1].statistics


class _Deferred(Mapping[type[Statistic], Statistic]):
    """Statistics that are read whenever one of them is asked for."""

    def __init__(
        self, statistics: Sequence[type[Statistic]], read: Callable[[], Mapping[type[Statistic], Statistic]]
    ) -> None:
        self._statistics = statistics
        self._read = read

    def __getitem__(self, statistic: type[Statistic]) -> Statistic:
        return self._read()[statistic]

    def __iter__(self) -> Iterator[type[Statistic]]:
        return iter(self._statistics)

    def __len__(self) -> int:
        return len(self._statistics)


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


def decode(data: bytes, schema: Schema, statistics: Sequence[type[Statistic]], device: torch.device) -> Upload:
    """Read statistics as they arrive.

    Args:
        data: the payload.
        schema: how it was encoded.
        statistics: those that were sent, in their order.
        device: where the tensors go.

    Returns:
        The upload.

    Raises:
        CorruptArtifactError: the payload is cut, changed, or of another schema.
    """
    message = payload.decode(data, schema)
    arrived = {}
    for one in statistics:
        tensors = message.statistics[one.name]
        arrived[one] = one.of({name: tensor.to(device) for name, tensor in tensors.items()})
    return Upload(num_examples=message.num_examples, statistics=arrived)
