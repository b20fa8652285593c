from pathlib import Path

from fedfisher_core.reporting.chart_script import write_script

COMMITTED = Path(__file__).parents[2] / "reports/assets/vega.js"


def test_the_committed_script_is_that_of_the_installed_vega(tmp_path: Path) -> None:
    write_script(tmp_path)
    assert (tmp_path / "assets/vega.js").read_bytes() == COMMITTED.read_bytes()


def test_a_script_that_is_whole_stays_and_another_is_made_anew(tmp_path: Path) -> None:
    script, path = COMMITTED.read_bytes(), tmp_path / "assets/vega.js"
    path.parent.mkdir()
    path.write_bytes(script)
    written = path.stat().st_mtime_ns
    write_script(tmp_path)
    assert path.stat().st_mtime_ns == written
    for other in (script[:-1], script.replace(b"vl-convert 1", b"vl-convert 0", 1)):
        path.write_bytes(other)
        write_script(tmp_path)
        assert path.read_bytes() == script
