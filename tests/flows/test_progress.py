"""What a log that is no terminal shows of a long run."""

import io
import time

from flows.progress import Lines
from tests.waiting import wait_until


def written(file: io.StringIO, lines: int) -> list[str]:
    wait_until(lambda: file.getvalue().count("\n") >= lines, f"{lines} lines are written")
    return file.getvalue().splitlines()


def test_a_log_gets_lines_until_the_end() -> None:
    file = io.StringIO()
    lines = Lines(name="small", total=9, file=file, seconds=0.01)
    assert written(file, 1)[0] == "small: 0 of 9 jobs, 0 min"
    lines.update(5)
    count = len(file.getvalue().splitlines())
    assert written(file, count + 2)[-1] == "small: 5 of 9 jobs, 0 min, about 0 min left"
    lines.close()
    time.sleep(0.05)
    length = len(file.getvalue())
    time.sleep(0.05)
    assert len(file.getvalue()) == length


def test_a_short_run_is_silent() -> None:
    file = io.StringIO()
    lines = Lines(name="small", total=9, file=file)
    lines.update(7)
    lines.close()
    assert file.getvalue() == ""
