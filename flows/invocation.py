"""How this process was started."""

import shlex
import sys
from pathlib import Path


def command_line() -> str:
    """Say which command this process runs, as a shell would read it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
