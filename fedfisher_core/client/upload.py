"""What the server receives from one client, after the network."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, cast, overload

import torch

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from fedfisher_core.wire import Family, Schema, fedavg_bits, fit, payload

S = TypeVar("S", bound=Statistic)
T = TypeVar("T")


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


class StoredUploads(Sequence[Upload]):
    """Uploads that stay encoded in files until one is looked at; only the last one's tensors are held.

    So whoever goes through the clients one after another needs the memory of one of them.

    Args:
        paths: one payload a client.
        num_examples: how many examples each client holds.
        schema: how the payloads are encoded.
        kinds: the statistics that were sent, in their order.
        device: where the tensors go.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        num_examples: Sequence[int],
        schema: Schema,
        kinds: Sequence[type[Statistic]],
        device: torch.device,
    ) -> None:
        self._paths = paths
        self._num_examples = num_examples
        self._schema = schema
        self._kinds = kinds
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
        return Upload(self._num_examples[place], _Deferred(self._kinds, partial(self._read, place)))

    def _read(self, index: int) -> Mapping[type[Statistic], Statistic]:
        if self._last is None or self._last[0] != index:
            self._last = None
            data = self._paths[index].read_bytes()
            self._last = (index, decode(data, self._schema, self._kinds, self._device))
        return self._last[1].statistics


class _Deferred(Mapping[type[Statistic], Statistic]):
    """Statistics that are read whenever one of them is asked for."""

    def __init__(
        self, kinds: Sequence[type[Statistic]], read: Callable[[], Mapping[type[Statistic], Statistic]]
    ) -> None:
        self._kinds = kinds
        self._read = read

    def __getitem__(self, kind: type[Statistic]) -> Statistic:
        return self._read()[kind]

    def __iter__(self) -> Iterator[type[Statistic]]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


class Column(Sequence[T]):
    """Something of every client's upload, looked up when it is asked for.

    Args:
        uploads: one a client.
        pick: takes it from an upload.
    """

    def __init__(self, uploads: Sequence[Upload], pick: Callable[[Upload], T]) -> None:
        self._uploads = uploads
        self._pick = pick

    def __len__(self) -> int:
        return len(self._uploads)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._pick(upload) for upload in self._uploads[index]]
        return self._pick(self._uploads[index])


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
