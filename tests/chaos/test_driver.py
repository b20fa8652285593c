"""What the tests of kills count as left behind."""

from pathlib import Path

from tests.chaos.driver import left_in_temporary
from tests.end_to_end.conftest import Workplace


def test_what_python_tries_a_folder_with_is_not_left_by_us(tmp_path: Path) -> None:
    (tmp_path / "ub63ncw0").write_bytes(b"blat")
    (tmp_path / "ub63ncw1").write_bytes(b"longer")
    (tmp_path / "ub63ncw2").mkdir()
    (tmp_path / "fedfisher-1.lock").touch()
    left = left_in_temporary(Workplace(tmp_path, {"TMPDIR": str(tmp_path)}))
    assert left == {"ub63ncw1", "ub63ncw2", "fedfisher-1.lock"}
