"""What the server receives from one client, after the network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast, overload

from fedfisher_core.client.statistic import Statistic

S = TypeVar("S", bound=Statistic)
T = TypeVar("T")


@dataclass(frozen=True)
class Upload:
    """One client's statistics.

    Args:
        num_examples: how many examples the client holds, n_i.
        statistics: by class; exactly those that the method declares.
    """

    num_examples: int
    statistics: Mapping[type[Statistic], Statistic]

    def __getitem__(self, statistic: type[S]) -> S:
        return cast(S, self.statistics[statistic])


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
