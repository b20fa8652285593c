import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tasks.process import loading


class Ring:
    """Holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_never_looked_through_and_what_comes_later_is() -> None:
    with loading():
        assert not gc.isenabled()
        loaded = weakref.ref(Ring())
    assert gc.isenabled()
    later = weakref.ref(Ring())
    gc.collect()
    assert loaded() is not None
    assert later() is None


def test_loading_that_fails_is_over() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_a_process_whose_end_is_spared_still_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import tempfile; from tasks.process import spare_the_end; "
        "spare_the_end(); kept = tempfile.TemporaryDirectory()"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={"TMPDIR": str(tmp_path)}, cwd=Path(__file__).parents[2], check=True
    )
    assert list(tmp_path.iterdir()) == []
