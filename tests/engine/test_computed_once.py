from dataclasses import dataclass, field
from threading import Barrier, BrokenBarrierError, Thread

import pytest

from fedfisher_core.engine.computed_once import computed_once
from tests.waiting import HANG_SECONDS


@dataclass(frozen=True)
class Sum:
    terms: list[int]
    meeting: Barrier = field(default_factory=lambda: Barrier(1))

    @computed_once
    def value(self) -> int:
        """The sum."""
        self.meeting.wait(timeout=HANG_SECONDS)
        return sum(self.terms)


def test_a_value_is_computed_once_for_each_object() -> None:
    one, other = Sum([1, 2]), Sum([3])
    assert (one.value, other.value) == (3, 3)
    one.terms.append(10)
    other.terms.append(10)
    assert (one.value, other.value) == (3, 3)
    assert Sum([7]).value == 7


def test_two_objects_are_computed_side_by_side() -> None:
    meeting = Barrier(2)
    sums = [Sum([number], meeting) for number in (1, 2)]
    threads = [Thread(target=getattr, args=(one, "value")) for one in sums]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each waited in its computation until the other had come to its own.
    assert [vars(one)["value"] for one in sums] == [1, 2]


def test_what_fails_is_computed_again() -> None:
    meeting = Barrier(1)
    meeting.abort()
    one = Sum([1], meeting)
    with pytest.raises(BrokenBarrierError):
        _ = one.value
    meeting.reset()
    assert one.value == 1


def test_the_class_shows_what_is_documented() -> None:
    assert Sum.value.__doc__ == "The sum."
