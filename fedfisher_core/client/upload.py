"""What the server receives from one client, after the network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast, overload

from torch import nn

from fedfisher_core.client.statistic import Statistic

S = TypeVar("S", bound=Statistic)
T = TypeVar("T")
Ask = Callable[[type[Statistic], nn.Module], Statistic]
"""Takes a statistic and a network; returns what a client computes of the network on its examples."""


@dataclass(frozen=True)
class Upload:
    """One client's statistics.

    Args:
        num_examples: how many examples the client holds, n_i.
        statistics: by class; exactly those that the method declares.
        again: asks the client once more, for references that declare it; None for all other methods.
    """

    num_examples: int
    statistics: Mapping[type[Statistic], Statistic]
    again: Ask | None = None

    def __getitem__(self, statistic: type[S]) -> S:
        return cast(S, self.statistics[statistic])

    def ask(self, statistic: type[S], network: nn.Module) -> S:
        """Have the client compute a statistic of another network.

        Args:
            statistic: one that the method declares.
            network: on the method's device, in evaluation mode.

        Returns:
            What the client would send.
        """
        if self.again is None:
            raise RuntimeError(f"the method asks for {statistic.name!r} again, and does not declare asks_again=True")
        return cast(S, self.again(statistic, network))


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
