"""The script with which pages draw their charts anew."""

import hashlib
from importlib.metadata import version
from pathlib import Path

from fedfisher_core.reporting.rows import write_file

SCRIPT = Path("assets/vega.js")
"""As seen from the folder of all reports."""


def write_script(reports: Path) -> None:
    """Write the script of Vega, Vega-Lite and vega-embed for the pages in a folder of reports, unless it is there.

    Raises:
        InputError: it can't be written.
    """
    import vl_convert

    path = reports / SCRIPT
    # Making it takes more than a second, so its first line says what the rest must be.
    if path.is_file():
        first, _, rest = path.read_bytes().partition(b"\n")
        if first == _first_line(rest):
            return
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").encode()
    write_file(path, _first_line(script) + b"\n" + script)


def _first_line(script: bytes) -> bytes:
    return f"// vl-convert {version('vl-convert-python')}, SHA-256 {hashlib.sha256(script).hexdigest()}".encode()
