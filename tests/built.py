"""What tests share since it takes seconds to make: a folder of any kind, and the site."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Make a folder that all processes of these tests share, in the first of them that asks for it."""
    own = factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, done = common / name, common / f"{name}.done"
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def build_site(folder: Path) -> Path:
    """Build the site into a folder, and return the folder."""
    # Quiet, MkDocs would count no warning.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # A proxy that is not there: what asks the network fails.
    offline = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "all_proxy")}
    environment = os.environ | offline | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
