import sys

import pytest
import torch

from fedfisher_core.evaluation import memory
from fedfisher_core.evaluation.memory import working_memory

MIB = 2**20
CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak can be set back on Linux only")


def hold(mib: int) -> None:
    torch.zeros(mib * MIB // 4).add_(1)


def test_memory_is_counted_beyond_what_was_held_before() -> None:
    kept = torch.ones(200 * MIB // 4)
    with working_memory(CPU) as peak:
        hold(100)
    assert 90 * MIB < peak.bytes < 150 * MIB
    assert kept[0] == 1


def test_an_earlier_peak_does_not_count() -> None:
    hold(300)
    with working_memory(CPU) as peak:
        hold(50)
    assert 40 * MIB < peak.bytes < 100 * MIB


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


def test_a_failure_ends_the_measurement() -> None:
    with pytest.raises(ZeroDivisionError), working_memory(CPU):
        raise ZeroDivisionError
    with working_memory(CPU) as peak:
        hold(50)
    assert 40 * MIB < peak.bytes < 100 * MIB
