import subprocess
import sys

import pytest

from fedfisher_core.engine.malloc import Throttled

_HELD = """
import fedfisher_core.engine.malloc as heap

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 / 1024
"""

# Blocks below the size at which glibc maps each by itself; the last one holds the others' heap.
_FREED = """
blocks = [bytearray(2**16) for _ in range(2000)]
last = bytearray(2**10)
full = held()
del blocks
heap.trim_heap()
print(full - held())
"""

# Blocks of the size of a batch's maps, which glibc has the system take back and clear each time.
_KEPT = """
def left_by_a_block():
    before = held()
    block = bytearray(b"1") * 2**26
    del block
    return held() - before

print(left_by_a_block())
heap.keep_freed_memory()
print(left_by_a_block())
before = held()
heap.trim_heap()
print(before - held())
"""

_of_glibc = pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told what to do with what is freed")


def printed_by(code: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", _HELD + code], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()]


@_of_glibc
def test_memory_that_was_freed_goes_back() -> None:
    (freed,) = printed_by(_FREED)
    assert freed > 100


@_of_glibc
def test_memory_is_kept_for_what_comes_next_until_it_is_given_back() -> None:
    before, kept, given_back = printed_by(_KEPT)
    assert before < 8
    assert kept > 56
    assert given_back > 56


def test_what_was_done_a_moment_ago_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.9, 11.0, 11.5, 30.0])
    monkeypatch.setattr("fedfisher_core.engine.malloc.time.monotonic", lambda: next(times))
    done: list[int] = []
    paced = Throttled(lambda: done.append(len(done)), seconds=1.0)
    counts = []
    for _ in range(5):
        paced()
        counts.append(len(done))
    assert counts == [1, 1, 2, 2, 3]
