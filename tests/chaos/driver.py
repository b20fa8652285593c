"""The real command, killed at random moments: workplaces to run it in, and what may be left of both."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import yaml

from tests.end_to_end.conftest import BIN, Workplace
from tests.waiting import HANG_SECONDS

NAME = "chaos"
PLAIN = "threads"
MARK = "CHAOS_MARK"
_REASON = re.compile(r"^fedfisher: .+$", re.MULTILINE)

_SECURELY_SUMMED = ("fedavg", "fedfisher_diag")
_SETTINGS: Mapping[str, Any] = {
    "name": NAME,
    "seeds": [0, 1],
    "model": {"name": "mlp"},
    "partition": {"alpha": [0.5], "clients": [3]},
    "train": {"epochs": 1},
    "methods": {"fedavg": {}, "fedfisher_diag": {}, "ensemble": {}},
    "run": {"runner": "threads", "workers": 2},
}
_STAGES = {
    NAME: {
        "cmd": "fedfisher stage",
        "params": [{"params.yaml": None}],
        "outs": [
            {f"stages/{NAME}": {"persist": True}},
            {f"results/{NAME}/results.json": {"cache": False, "persist": True}},
        ],
    }
}


@dataclass(frozen=True)
class Variant:
    """A way to run one small benchmark.

    Args:
        changes: of its settings.
        versioned: in a repository of git and DVC.
        temporary: on a Prefect server of the command's own.
    """

    changes: Mapping[str, Any]
    versioned: bool = False
    temporary: bool = False


VARIANTS = {
    PLAIN: Variant({}),
    "processes": Variant({"run": {"runner": "processes", "workers": 2}}),
    "dask": Variant({"run": {"runner": "dask", "workers": 2}}),
    "temporary": Variant({}, temporary=True),
    "secure": Variant(
        {"methods": {name: {"wire": {"budget": "none", "server_view": "secure_sum"}} for name in _SECURELY_SUMMED}}
    ),
    "dvc": Variant({}, versioned=True),
    # Server and clients remember earlier rounds, whose results are deleted meanwhile.
    "rounds": Variant(
        {
            "train": {"epochs": 1, "momentum": 0.0, "objective": "scaffold"},
            "rounds": {"count": 4, "cohort": 2, "keep": 1, "server_optimiser": "fedadam"},
            "methods": {"fedavg": {}, "fedfisher_diag": {}},
        }
    ),
}


@dataclass(frozen=True)
class Finished:
    """An undisturbed run.

    Args:
        place: where.
        rows: its results, without what differs between reruns.
        recorded: how often MLflow has each run, by experiment and name.
        seconds: how long it took.
    """

    place: Workplace
    rows: list[dict[str, object]]
    recorded: Counter[tuple[str, str]]
    seconds: float


@dataclass(frozen=True)
class Kill:
    """How a command was killed.

    Args:
        sent: the signal.
        group: whether all processes of its group got it.
        after: seconds.
    """

    sent: signal.Signals
    group: bool
    after: float

    @classmethod
    def drawn(cls, rng: random.Random, within: float) -> "Kill":
        """Draw one.

        Args:
            rng: what is random follows it.
            within: the most seconds.
        """
        sent = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        return cls(sent, group=rng.random() < 0.5, after=rng.uniform(0.1, within))


def new_workplace(root: Path, variant: Variant, digits: Path, prefect_api: str) -> Workplace:
    """Make a folder to work in, whose commands can be told from all others and have a temporary folder of their own.

    Args:
        root: an empty or missing folder for all of it.
        variant: what is to be run.
        digits: the data folder.
        prefect_api: address of a Prefect server.

    Returns:
        The workplace.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    environment |= {
        MARK: str(root),
        "TMPDIR": str(root / "temporary"),
        "HOME": str(root),
        "PREFECT_HOME": str(root / "prefect"),
        "FEDFISHER_DATA_DIR": str(digits),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "DVC_NO_ANALYTICS": "true",
    }
    if not variant.temporary:
        environment["PREFECT_API_URL"] = prefect_api
    folder = root / "work"
    for path in (folder, root / "temporary"):
        path.mkdir(parents=True)
    place = Workplace(folder, environment)
    place.write("params.yaml", {**_SETTINGS, **variant.changes})
    if variant.versioned:
        _version(folder)
    return place


def _version(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (folder / ".dvc/.gitignore").write_text("/tmp\n/cache\n")
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": _STAGES}))


def finished(place: Workplace) -> Finished:
    """Run the benchmark to its end.

    Args:
        place: where.
    """
    begun = time.monotonic()
    place.run("fedfisher", "run", timeout=HANG_SECONDS)
    seconds = time.monotonic() - begun
    return Finished(place, place.rows(NAME), recorded(place), seconds)


def run_and_kill(place: Workplace, command: Sequence[str], kill: Kill) -> float | None:
    """Start a command and kill it, unless it is done before; nothing of it may live on.

    Args:
        place: where.
        command: the command line.
        kill: how it is killed.

    Returns:
        The seconds after which it was done; None where it was killed.
    """
    begun = time.monotonic()
    process = place.start(*command)
    try:
        _, err = process.communicate(timeout=kill.after)
    except subprocess.TimeoutExpired:
        (os.killpg if kill.group else os.kill)(process.pid, kill.sent)
    else:
        assert process.returncode == 0, err
    seconds = time.monotonic() - begun
    require_no_orphans(place)
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert "Traceback" not in err, err
    return seconds if process.returncode == 0 else None


def alive(place: Workplace) -> dict[int, str]:
    """Command lines of the processes that descend from a place's commands, by process number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment, line = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
        except OSError:
            # It ended meanwhile, or is another user's.
            continue
        if f"{MARK}={place.environment[MARK]}\0".encode() in environment and line:
            found[int(folder.name)] = line.replace(b"\0", b" ").decode()
    return found


def require_no_orphans(place: Workplace) -> None:
    """Wait for the processes of a place to end, and end those that do not.

    Raises:
        AssertionError: some did not.
    """
    deadline = time.monotonic() + HANG_SECONDS
    while (left := alive(place)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left, f"orphans: {left}"


def rerun(place: Workplace) -> CompletedProcess[str]:
    """Run the benchmark undisturbed; it says nothing long, and ends in time.

    Args:
        place: where.
    """
    process = place.start("fedfisher", "run")
    try:
        out, err = process.communicate(timeout=HANG_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in err, err
    return CompletedProcess(["fedfisher", "run"], process.returncode, out, err)


def require_equal(place: Workplace, wanted: Finished) -> None:
    """Check what is left after a run that was not killed.

    Args:
        place: where.
        wanted: an undisturbed run.

    Raises:
        AssertionError: results or records differ, or something is left behind.
    """
    assert place.rows(NAME) == wanted.rows
    assert recorded(place) == wanted.recorded
    require_no_orphans(place)
    assert not list((place.folder / "artifacts/.writing").iterdir())


def require_shared(place: Workplace) -> None:
    """Check that DVC takes all that a run has made.

    Args:
        place: where; in a repository of git and DVC.

    Raises:
        AssertionError: it does not.
    """
    place.run("dvc", "repro")
    said = place.run("dvc", "status").stdout
    assert "up to date" in said, said
    assert not list((place.folder / "stages/.writing").iterdir())


def said_in_one_line(err: str) -> bool:
    """Say whether a command that failed said why in one line; warnings may stand before.

    Args:
        err: its standard error.
    """
    return "Traceback" not in err and len(_REASON.findall(err)) == 1


def left_in_temporary(place: Workplace) -> set[str]:
    """Names of what lies in the temporary folder of a place's commands, but for what Python tries the folder with."""
    return {path.name for path in Path(place.environment["TMPDIR"]).iterdir() if not _is_trial(path)}


def _is_trial(path: Path) -> bool:
    """Whether `tempfile` made it to see that it can, and was killed in the moment before it removes it."""
    return re.fullmatch(r"[a-z0-9_]{8}", path.name) is not None and path.is_file() and path.stat().st_size <= 4


def recorded(place: Workplace) -> Counter[tuple[str, str]]:
    """Count the complete runs in MLflow's database by experiment and name."""
    with closing(sqlite3.connect(place.folder / "mlflow.db")) as database:
        return Counter(
            database.execute(
                "SELECT experiments.name, runs.name FROM runs JOIN experiments USING (experiment_id) "
                "JOIN tags USING (run_uuid) WHERE tags.key = 'content' AND runs.lifecycle_stage = 'active'"
            )
        )
