"""Which code makes a result: the modules behind a function or class, and a digest of what they say.

Imports are followed as they are written. A module that is imported by a name made at run time, or that is reached
only as an attribute of its package, is not seen.
"""

import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from fedfisher_core.errors import InputError
from fedfisher_core.syntax import Import, Source, read_source

CORE = __name__.partition(".")[0]
INFRASTRUCTURE = (
    "fedfisher_core.attack.settings",
    "fedfisher_core.configuration",
    "fedfisher_core.errors",
    "fedfisher_core.experiments.attack.settings",
    "fedfisher_core.experiments.benchmark.settings",
    "fedfisher_core.experiments.contract",
    "fedfisher_core.experiments.fedfish_toy.settings",
    "fedfisher_core.experiments.loading",
    "fedfisher_core.experiments.two_layer.settings",
    "fedfisher_core.files",
    "fedfisher_core.jobs",
    "fedfisher_core.locks",
    "fedfisher_core.methods.binding",
    "fedfisher_core.methods.method",
    "fedfisher_core.progress",
    "fedfisher_core.registry",
    "fedfisher_core.regression.grid",
    "fedfisher_core.reporting",
    "fedfisher_core.scratch",
    "fedfisher_core.settings",
    "fedfisher_core.signatures",
    "fedfisher_core.sources",
    "fedfisher_core.store",
    "fedfisher_core.syntax",
    "fedfisher_core.theory.grid",
    "fedfisher_core.walk",
    "fedfisher_core.yaml_values",
    "flows",
    "tasks",
)
"""Modules, with all below them, that decide what is run, written down and reported, but make no number."""


@dataclass(frozen=True)
class _Place:
    """Where a module lies.

    Args:
        file: its file; None for a namespace package and for what is built into the interpreter.
        folders: where its submodules are searched; None for a module that is no package.
    """

    file: Path | None
    folders: tuple[str, ...] | None


def source_digest(*made_by: Callable[..., Any] | type | ModuleType) -> str:
    """Digest of the modules that define these things and of all modules that those import.

    Comments, docstrings and formatting do not count, nor does anything that only type checkers import.

    Args:
        made_by: functions, classes and modules that compute a result.

    Returns:
        16 hexadecimal digits.

    Raises:
        InputError: the source of a thing, or of a module that it imports, can't be read.
    """
    return _closure_digest(modules_of(*made_by))


def modules_of(*made_by: Callable[..., Any] | type | ModuleType) -> tuple[str, ...]:
    """The modules that define these things and all modules that those import.

    Args:
        made_by: functions, classes and modules that compute a result.

    Returns:
        Their names in order, of this project and of the things' own distributions.

    Raises:
        InputError: the source of a thing, or of a module that it imports, can't be read.
    """
    return _closure(frozenset(map(_readable_module, made_by)))


def distribution_of(thing: Callable[..., Any] | type | ModuleType) -> tuple[str, str] | None:
    """The plug-in distribution that defines a thing.

    Args:
        thing: a function, a class or a module.

    Returns:
        Its name and version; None for this project's own things and for what was not installed.
    """
    top = _top(_module_name(_unwrapped(thing)))
    if top == CORE:
        return None
    owner = _owners().get(top)
    if owner is None or owner is _owners().get(CORE):
        return None
    return owner.name, owner.version


def _unwrapped(thing: Any) -> Any:
    while True:
        if isinstance(thing, functools.partial):
            thing = thing.func
        elif hasattr(thing, "__wrapped__"):
            thing = thing.__wrapped__
        else:
            return thing


def _module_name(thing: Any) -> str:
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    if name in ("__main__", "__mp_main__"):
        # A worker process calls its parent's script by another name, and `python -m` writes the true one in the spec.
        spec = getattr(sys.modules[name], "__spec__", None)
        return "__main__" if spec is None else spec.name
    # A function of exec'd code may have no module at all.
    return name or ""


def _readable_module(thing: Any) -> str:
    thing = _unwrapped(thing)
    name = _module_name(thing)
    # What is typed in or exec'd has a file like "<stdin>", even where its module came from a real one.
    code = getattr(thing, "__code__", None)
    typed_in = code is not None and code.co_filename.startswith("<")
    if typed_in or not name or not _is_python(_locate(name)):
        called = getattr(thing, "__qualname__", name)
        raise InputError(
            f"the source of {called!r} (module {name or None!r}) can't be read, so its results can't be stored; "
            "put it into a module (a .py file) of its own"
        )
    return name


def _is_python(place: _Place | None) -> bool:
    return place is not None and place.file is not None and place.file.suffix == ".py" and place.file.is_file()


@functools.cache
def _closure_digest(names: tuple[str, ...]) -> str:
    lines = [f"{name} {_source(name).digest}\n" for name in names]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


@functools.cache
def _closure(roots: frozenset[str]) -> tuple[str, ...]:
    found = set(roots)
    waiting = list(roots)
    while waiting:
        new = _imported_modules(waiting.pop()) - found
        found |= new
        waiting += new
    return tuple(sorted(found))


@functools.cache
def _imported_modules(name: str) -> frozenset[str]:
    imported = {module for each in _source(name).imports for module in _definers(each, name, frozenset())}
    # A namespace package says nothing itself.
    return frozenset(module for module in imported if (place := _locate(module)) is not None and place.file)


def _definers(imported: Import, importer: str, seen: frozenset[Import]) -> Iterator[str]:
    """Modules that define what is imported: a package's `__init__` may only pass it on."""
    module, name = imported.module, imported.name
    if imported in seen or not _counts(module, importer):
        return
    place = _locate(module)
    if place is None:
        return
    if name in (None, "*") or place.folders is None:
        yield module
        return
    submodule = f"{module}.{name}"
    passed_on = [each for each in _source(module).imports if each.bound == name] if place.file else []
    if _locate(submodule) is not None:
        if _counts(submodule, importer):
            yield submodule
    elif not passed_on:
        yield module
    for each in passed_on:
        yield from _definers(each, module, seen | {imported})


def _counts(module: str, importer: str) -> bool:
    if any(module == prefix or module.startswith(f"{prefix}.") for prefix in INFRASTRUCTURE):
        return False
    top, own = _top(module), _top(importer)
    return top in (own, CORE) or (own != CORE and _belong_together(top, own))


@functools.cache
def _belong_together(top: str, own: str) -> bool:
    if top in sys.stdlib_module_names:
        return False
    owner = _owners().get(top)
    if owner is not None:
        return owner is _owners().get(own)
    # Nothing says who installed it, as in an editable install or a folder of scripts.
    folder = _folder(top)
    return folder is not None and folder == _folder(own)


def _folder(top: str) -> Path | None:
    place = _locate(top)
    if place is None:
        return None
    inside = Path(place.folders[0]) if place.folders else place.file
    return None if inside is None else inside.resolve().parent


@functools.cache
def _owners() -> dict[str, Distribution]:
    """The distribution that installs each top-level module."""
    owners: dict[str, Distribution] = {}
    for distribution in distributions():
        for top in _top_levels(distribution):
            owners.setdefault(top, distribution)
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
    return tops | {_top(entry.module) for entry in distribution.entry_points if entry.group.startswith("fedfisher.")}


def _top(module: str) -> str:
    return module.partition(".")[0]


@functools.cache
def _locate(name: str) -> _Place | None:
    """Find a module without importing it or its packages."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        file, folders = getattr(loaded, "__file__", None), getattr(loaded, "__path__", None)
        return _Place(None if file is None else Path(file), None if folders is None else tuple(folders))
    spec = _spec(name)
    if spec is None:
        return None
    folders = spec.submodule_search_locations
    file = spec.origin if spec.has_location else None
    return _Place(None if file is None else Path(file), None if folders is None else tuple(folders))


def _spec(name: str) -> ModuleSpec | None:
    package, _, _ = name.rpartition(".")
    if not package:
        return find_spec(name)
    parent = _locate(package)
    return None if parent is None or parent.folders is None else PathFinder.find_spec(name, parent.folders)


@functools.cache
def _source(name: str) -> Source:
    place = _locate(name)
    assert place is not None
    if not _is_python(place):
        raise InputError(
            f"the source of module {name!r} ({place.file}) can't be read, so results that need it can't be stored; "
            "write it in Python, in a .py file"
        )
    assert place.file is not None
    package = name if place.folders is not None else name.rpartition(".")[0]
    try:
        return read_source(place.file.read_bytes(), package)
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"the source of module {name!r} ({place.file}) can't be read: {error}") from error
