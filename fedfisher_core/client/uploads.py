"""A client's upload: how its statistics are encoded, and what the server receives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, cast, overload

import torch
from torch import nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.communication.wire import payload
from fedfisher_core.communication.wire.budget import Family, fedavg_bits, fit
from fedfisher_core.communication.wire.payload import Schema
from fedfisher_core.engine.costs import Spent, Stopwatch
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings

S = TypeVar("S", bound=Statistic)
T = TypeVar("T")
Ask = Callable[[nn.Module], Local]
"""Takes a network; gives the client with it in the place of its own."""


def upload_schema(uploads: Sequence[ConfiguredStatistic], spec: ModelSpec, wire: WireSettings) -> Schema:
    """Choose how one client's statistics are encoded; client and server choose alike.

    Args:
        uploads: in the order in which they are sent.

    Raises:
        InputError: the statistics do not fit the budget in this format.
        UnsupportedLayerError: a statistic does not exist for a layer of the network.
    """
    match wire.budget:
        case "none":
            budget = None
        case "fedavg":
            budget = fedavg_bits(sum(parameter.numel() for parameter in spec.skeleton().parameters()))
        case int():
            budget = wire.budget
    statistics = [one.wire_spec(spec) for one in uploads]
    try:
        return fit(statistics, family=Family(wire.format), budget_bits=budget, factor_bits=wire.factor_bits)
    except InputError as error:
        setting = f"wire.budget={wire.budget}, wire.format={wire.format}"
        raise InputError(f"{setting}: {error}; or wire.budget=none") from error


@dataclass(frozen=True)
class Upload:
    """One client's statistics.

    Args:
        num_examples: of the client, n_i.
        statistics: by class; exactly those that the method declares.
        again: asks the client once more, for references that declare it; None for all other methods.
    """

    num_examples: int
    statistics: Mapping[type[Statistic], Statistic]
    again: Ask | None = None

    def __getitem__(self, statistic: type[S]) -> S:
        return cast(S, self.statistics[statistic])

    def ask(self, statistic: type[S], network: nn.Module) -> S:
        """Have the client compute a statistic of another network; see `client`."""
        return statistic.compute(self.client(network))

    def client(self, network: nn.Module) -> Local:
        """The client with another network; nothing of it may reach the server but what the client would send.

        Args:
            network: on the method's device, in evaluation mode.
        """
        if self.again is None:
            raise RuntimeError("the method asks a client again, and does not declare asks_again=True")
        return self.again(network)


class Column(Sequence[T]):
    """One item of every client's upload, looked up on use."""

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


class StoredUploads(Sequence[Upload]):
    """Uploads that stay encoded in files until they are read; only the last one's tensors are held.

    So a method that goes through the clients one after another needs the memory of one upload. A method that goes
    through them several times decodes each upload as often. `again` counts the cost of decoding after the first time.

    Args:
        paths: one payload a client.
        readers: what decodes each client's payload.
        statistics: those that were sent, in their order.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        num_examples: Sequence[int],
        readers: Sequence[Callable[[bytes], Upload]],
        statistics: Sequence[type[Statistic]],
        device: torch.device,
    ) -> None:
        self._paths = paths
        self._num_examples = num_examples
        self._readers = readers
        self._statistics = statistics
        self._device = device
        self._last: tuple[int, Upload] | None = None
        self._decoded: set[int] = set()
        self.again = Spent()

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
            watch = Stopwatch(self._device.type)
            self._last = (index, self._readers[index](self._paths[index].read_bytes()))
            if index in self._decoded:
                self.again += watch.spent()
            self._decoded.add(index)
        return self._last[1].statistics


class _Deferred(Mapping[type[Statistic], Statistic]):
    """Statistics that are read each time one of them is asked for."""

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
    """Encode a client's statistics for the network; the payload's length is the upload's cost."""
    return payload.encode(schema, {one.name: one.tensors for one in statistics}, num_examples=num_examples)


def decode(data: bytes, schema: Schema, statistics: Sequence[type[Statistic]], device: torch.device) -> Upload:
    """Decode a client's statistics.

    Args:
        statistics: those that were sent, in their order.

    Raises:
        CorruptArtifactError: the payload is cut, changed, or of another schema.
    """
    message = payload.decode(data, schema)
    arrived = {}
    for one in statistics:
        tensors = message.statistics[one.name]
        arrived[one] = one.of({name: tensor.to(device) for name, tensor in tensors.items()})
    return Upload(num_examples=message.num_examples, statistics=arrived)
