import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import indent

import pytest

from tests.waiting import wait_until

# What a callback of a weak reference raises is printed and dropped.
DROPPED = """
import time, weakref
class Thing:
    pass
thing = Thing()
reference = weakref.ref(thing, lambda reference: {sleep})
del thing
"""
CAUGHT = """
import time
try:
    {sleep}
except KeyboardInterrupt:
    pass
"""
# As Prefect's engine does around a flow.
IN_A_FLOW = """
from prefect.utilities.engine import capture_sigterm
with capture_sigterm():
{source}
    {sleep}
"""
# pydantic catches any exception while it writes a model down, and raises an error of its own.
WRAPPED = """
import time
from pydantic import BaseModel, model_serializer
class Model(BaseModel):
    @model_serializer
    def written(self):
        return {sleep}
def command(options):
    Model().model_dump()
"""
WRAPPED_IN_A_FLOW = """
from prefect.utilities.engine import capture_sigterm
{source}
dump = command
def command(options):
    with capture_sigterm():
        dump(options)
"""
MAIN = """
import argparse
from flows import cli
from flows.stopping import stop_on_sigterm
{source}
class Parser:
    def parse_known_args(self, arguments):
        return argparse.Namespace(asked="methods", command=command), []
cli._parser = Parser
stop_on_sigterm()
cli.main()
"""
CHILD = """
from flows.stopping import leave, stop_on_sigterm
stop_on_sigterm()
try:
    {source}
    {sleep}
except KeyboardInterrupt as stop:
    leave(stop)
"""
# In short naps: a signal that comes after Python looked for one and before it sleeps is seen when it wakes only.
SLEEP = "(print('there', flush=True), [time.sleep(0.05) for _ in range(1200)])"
ENDS = {"end_with_input": subprocess.PIPE, "end_with_parent": subprocess.DEVNULL}
WAITING = "import time; from flows import stopping; stopping.{end}(); print('there', flush=True); time.sleep(3000)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdin={stdin}, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(3000)
"""


def stopped_by(sent: signal.Signals, source: str) -> tuple[int, str, float]:
    """Run a command that says when it can be stopped; returns its exit code, what it said and the seconds it took."""
    return started(sent, CHILD.format(source=source.replace("\n", "\n    "), sleep=SLEEP))


def started(sent: signal.Signals, child: str) -> tuple[int, str, float]:
    """Run a program as `stopped_by` does."""
    with subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        begun = time.monotonic()
        os.kill(process.pid, sent)
        _, err = process.communicate(timeout=40)
        return process.returncode, err.decode(), time.monotonic() - begun


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_stops_and_says_that_results_are_kept(sent: signal.Signals, code: int) -> None:
    stopped, err, _ = stopped_by(sent, "import time")
    assert stopped == code
    assert err.splitlines() == ["fedfisher: stopped; what was finished is kept and will not be computed again"]


def test_a_command_whose_readers_are_gone_stops_at_once() -> None:
    """As in `fedfisher run 2>&1 | tee log`, where Ctrl-C ends both."""
    child = CHILD.format(
        source="import os, sys, threading, time",
        sleep=f"threading.Thread(target=time.sleep, args=[60]).start(); {SLEEP}",
    )
    with subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) == 130


@pytest.mark.parametrize("while_a_flow_runs", [False, True])
def test_a_stop_that_python_drops_comes_again(while_a_flow_runs: bool) -> None:
    source = DROPPED.format(sleep=SLEEP)
    if while_a_flow_runs:
        source = IN_A_FLOW.format(source=indent(source, "    "), sleep=SLEEP)
    stopped, err, seconds = stopped_by(signal.SIGTERM, source)
    assert stopped == 143
    assert err.splitlines() == ["fedfisher: stopped; what was finished is kept and will not be computed again"]
    assert seconds < 4


@pytest.mark.drawn(0)
def test_a_stop_that_is_caught_is_carried_out_later() -> None:
    stopped, err, seconds = stopped_by(signal.SIGTERM, CAUGHT.format(sleep=SLEEP))
    assert stopped == 143
    assert err.splitlines() == ["fedfisher: stopped; what was finished is kept and will not be computed again"]
    assert 4 < seconds < 30


@pytest.mark.parametrize("while_a_flow_runs", [False, True])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_that_becomes_another_error_is_a_stop(sent: signal.Signals, code: int, while_a_flow_runs: bool) -> None:
    source = WRAPPED.format(sleep=SLEEP)
    if while_a_flow_runs:
        source = WRAPPED_IN_A_FLOW.format(source=source)
    stopped, err, _ = started(sent, MAIN.format(source=source))
    assert stopped == code
    assert err.splitlines() == ["fedfisher: stopped; what was finished is kept and will not be computed again"]


def test_an_error_without_a_stop_is_told_with_its_traceback() -> None:
    source = WRAPPED.format(sleep="1 / 0")
    ended = subprocess.run(
        [sys.executable, "-c", MAIN.format(source=source)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


def test_other_exceptions_that_python_drops_are_still_printed() -> None:
    source = DROPPED.format(sleep="1 / 0") + "import time"
    _, err, _ = stopped_by(signal.SIGTERM, source)
    assert "Exception ignored" in err
    assert "ZeroDivisionError" in err


@pytest.mark.parametrize("end", ENDS)
def test_a_child_ends_with_a_killed_parent(end: str) -> None:
    source = PARENT.format(child=WAITING.format(end=end), stdin=ENDS[end])
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(child), "the child ends")


def is_running(process: int) -> bool:
    try:
        # A process that has ended stays as a zombie until its parent waits for it.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_ends_whose_parent_was_gone_before_it_looked() -> None:
    child = "import os, time; from flows import stopping; print('there', flush=True)\n"
    child += "while os.getppid() == stopping._PARENT: time.sleep(0.05)\n"
    child += "stopping.end_with_parent(); time.sleep(3000)"
    source = PARENT.format(child=child, stdin=subprocess.DEVNULL)
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(process), "the child ends")
