import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from fedfisher_core.models import memory
from fedfisher_core.models.memory import working_memory

MIB = 2**20
CPU = torch.device("cpu")
of_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak can be set back on Linux only")


def hold(mib: int) -> None:
    torch.zeros(mib * MIB // 4).add_(1)


@of_linux
def test_memory_is_counted_beyond_what_was_held_before() -> None:
    kept = torch.ones(200 * MIB // 4)
    with working_memory(CPU) as peak:
        hold(100)
    assert 90 * MIB < peak.bytes < 150 * MIB
    assert kept[0] == 1


@of_linux
def test_an_earlier_peak_does_not_count() -> None:
    hold(300)
    with working_memory(CPU) as peak:
        hold(50)
    assert 40 * MIB < peak.bytes < 100 * MIB


@of_linux
def test_a_measurement_survives_others_that_begin_and_end_meanwhile() -> None:
    with working_memory(CPU) as outer:
        hold(200)
        with working_memory(CPU) as inner:
            hold(50)
        hold(20)
    assert outer.bytes > 180 * MIB
    assert inner.bytes < 100 * MIB


def test_measurements_with_equal_figures_end_each_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [100]
    monkeypatch.setattr(memory, "_held", lambda: 50)
    monkeypatch.setattr(memory, "_highest", lambda: held[0])
    with working_memory(CPU) as outer:
        with working_memory(CPU) as inner:
            pass
        held[0] = 200
    assert (inner.bytes, outer.bytes) == (50, 150)


@of_linux
def test_a_failure_ends_the_measurement() -> None:
    with pytest.raises(ZeroDivisionError), working_memory(CPU):
        raise ZeroDivisionError
    with working_memory(CPU) as peak:
        hold(50)
    assert 40 * MIB < peak.bytes < 100 * MIB


def without(field: str, folder: Path) -> Path:
    """The system's counters but for one."""
    lines = memory._STATUS.read_text().splitlines(keepends=True) if memory._STATUS.exists() else []
    path = folder / "status"
    path.write_text("".join(line for line in lines if not line.startswith(field)))
    return path


def measured_without(lacking: str, folder: Path) -> tuple[int, int]:
    """What a process without some counters measures of 100 MiB, and the most that it has ever held."""
    if "clear_refs" in lacking:
        # A folder can be written by no one as if it were a file.
        memory._RESET = folder if lacking.startswith("writable") else folder / "absent"
    elif lacking == "all counters":
        memory._STATUS = memory._RESET = folder / "absent"
    else:
        memory._STATUS = without(lacking, folder)
    with working_memory(CPU) as peak:
        hold(100)
    return peak.bytes, memory.most_ever_held()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("lacking", ["clear_refs", "writable clear_refs", "VmHWM", "VmRSS", "all counters"])
def test_where_counters_are_missing_the_figure_is_an_upper_bound(lacking: str, tmp_path: Path) -> None:
    # A process that has held more before takes again what it has freed, which no counter shows.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        measured, most = fresh.submit(measured_without, lacking, tmp_path).result()
    # The system's counters lag behind each other by some pages.
    assert 90 * MIB < measured <= most + MIB
