import subprocess
import sys

import pytest

from fedfisher_core.heap import Paced

# Blocks below the size at which glibc maps each by itself; the last one holds the others' heap.
_FREED = """
import fedfisher_core.heap as heap

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4 / 1024

blocks = [bytearray(2**16) for _ in range(2000)]
last = bytearray(2**10)
full = held()
del blocks
heap.give_back()
print(full - held())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps a heap that it can be told to give back")
def test_memory_that_was_freed_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 100


def test_what_was_done_a_moment_ago_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.9, 11.0, 11.5, 30.0])
    monkeypatch.setattr("fedfisher_core.heap.time.monotonic", lambda: next(times))
    done: list[int] = []
    paced = Paced(lambda: done.append(len(done)), seconds=1.0)
    counts = []
    for _ in range(5):
        paced()
        counts.append(len(done))
    assert counts == [1, 1, 2, 2, 3]
