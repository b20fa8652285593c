import os
import subprocess
import sys

import pytest

from fedfisher_core.engine.costs import usable_processors
from fedfisher_core.settings import RunSettings
from flows.submitting import started


def test_a_system_that_binds_no_process_has_all_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert usable_processors() == 7
    with started(RunSettings(runner="threads")) as workers:
        assert workers.count == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_processors() == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no process")
def test_a_process_that_is_bound_has_the_processors_that_it_may_use() -> None:
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
    code += "from fedfisher_core.engine.costs import usable_processors; print(usable_processors())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
