"""Short jobs travel together: beside what it computes a task of Prefect's takes time (`benchmarks.orchestration`)."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from fedfisher_core.batches import Batch
from fedfisher_core.failures import Failure
from fedfisher_core.walk import Walk
from tasks.job import Done

_FORGETTING = 0.5


@dataclass(frozen=True)
class Group:
    """Batches that are handed over together.

    Args:
        batches: at least one.
        seconds: that they take; infinite for one batch that must have a task of its own, as nobody knows how long it
            takes, or as it failed among others.
    """

    batches: tuple[Batch, ...]
    seconds: float


class Groups:
    """Takes what is ready from a walk, as many batches at once as are worth a task.

    How long jobs of one pace take is learned while they run; until it is known, each has a task of its own.

    Args:
        walk: under way.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._rates: dict[Hashable, float] = {}
        self._alone: list[Batch] = []

    def take(self, places: int, *, longest: float, least: float) -> Group | None:
        """Take the largest batches that can start.

        The others get their part, and the less is left the fewer are taken, so that all end together.

        Args:
            places: how many groups are handed over at once.
            longest: seconds of a group of several batches.
            least: seconds that are not worth sharing out.

        Returns:
            The group; None while nothing can start.
        """
        if self._alone:
            return Group((self._alone.pop(),), math.inf)
        part = math.ceil(self._walk.ready / places)
        group: list[Batch] = []
        seconds = 0.0

        def fits(batch: Batch) -> bool:
            return not group or seconds + self._seconds(batch) <= (longest if len(group) < part else least)

        while (batch := self._walk.take(fits)) is not None:
            seconds += self._seconds(batch)
            group.append(batch)
        return Group(tuple(group), seconds) if group else None

    def settle(self, group: Sequence[Batch], result: list[Done] | Exception) -> list[Failure]:
        """Tell the walk what became of a task's batches.

        What failed in company is tried again in a task of its own, whose error is the one that counts.

        Args:
            group: the batches of one; none where a task has ended that was given nothing more.
            result: of the task, an entry for each batch, or why it has failed.

        Returns:
            What has failed with it.
        """
        if isinstance(result, Exception):
            if len(group) == 1:
                return _there(self._walk.lose(group[0], result))
            self._alone += group
            return []
        failures = []
        for batch, done in zip(group, result, strict=True):
            if done.artifacts is None:
                self._alone.append(batch)
            else:
                self._learn(batch, done.seconds)
                failures += _there(self._walk.keep(batch, done.artifacts))
        return failures

    def _learn(self, batch: Batch, seconds: float) -> None:
        # Rather too slow than too fast: jobs of one pace may be of several networks.
        pace, rate = batch.jobs[0].pace, seconds / _units(batch)
        known = self._rates.get(pace, 0.0)
        self._rates[pace] = max(rate, known + _FORGETTING * (rate - known))

    def _seconds(self, batch: Batch) -> float:
        return self._rates.get(batch.jobs[0].pace, math.inf) * _units(batch)


def _units(batch: Batch) -> float:
    """What its time is proportional to: the examples that pass through a network, where its jobs count them."""
    return batch.size or len(batch.jobs)


def _there(failure: Failure | None) -> list[Failure]:
    return [] if failure is None else [failure]
