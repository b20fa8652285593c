import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from flows.garbage import without_collection


class Ring:
    """Holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_cycles_of_imports_stay_and_later_ones_are_collected() -> None:
    with without_collection():
        assert not gc.isenabled()
        imported = weakref.ref(Ring())
    assert gc.isenabled()
    later = weakref.ref(Ring())
    gc.collect()
    assert imported() is not None
    assert later() is None


def test_importing_that_fails_is_over() -> None:
    with pytest.raises(ImportError), without_collection():
        raise ImportError
    assert gc.isenabled()


def test_a_process_that_exits_without_collecting_still_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import tempfile; from flows.garbage import exit_without_collecting; "
        "exit_without_collecting(); kept = tempfile.TemporaryDirectory()"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={"TMPDIR": str(tmp_path)}, cwd=Path(__file__).parents[2], check=True
    )
    assert list(tmp_path.iterdir()) == []
