"""How this process was started."""

import shlex
import sys
from pathlib import Path


def command_line() -> str:
    """Return this process's command, quoted for a shell."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
