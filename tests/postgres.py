"""A PostgreSQL server, for tests."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import free_port

USER, PASSWORD = "team", "of-the-database"
# It refuses to run as root; Debian's package makes this user.
_UNPRIVILEGED = "postgres"


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server without databases of its own.

    Yields:
        Its address, with user and password.
    """
    programs = _programs()
    # The user that it runs as must reach the folder. Only their owner reaches pytest's own folders.
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        data, secret, port = folder / "data", folder / "secret", free_port()
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            owner = pwd.getpwnam(_UNPRIVILEGED)
            for path in (folder, secret):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        _run(programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        _run(programs / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
        try:
            yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _programs() -> Path:
    on_path = shutil.which("initdb")
    places = [Path(on_path).parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not places:
        pytest.skip("no PostgreSQL server: initdb is neither on the PATH nor in /usr/lib/postgresql")
    return places[-1]


def _run(*command: str | Path) -> None:
    as_user = ["runuser", "-u", _UNPRIVILEGED, "--"] if os.geteuid() == 0 else []
    subprocess.run([*as_user, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
