"""Registries: data sets, models, methods and other things are found by name, here and in other packages."""

import importlib
import logging
import multiprocessing
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions, entry_points
from types import FrameType, ModuleType
from typing import Any, Generic, TypeVar

from fedfisher_core.engine.errors import InputError, in_one_line, shown
from fedfisher_core.engine.installed import CORE, distribution_of
from fedfisher_core.settings.reading import nearest

T = TypeVar("T")

_log = logging.getLogger("fedfisher.registry")
_registries: list["Registry[Any]"] = []
_warned: set[tuple[str, ...]] = set()
_GROUPS = "fedfisher."
"""Prefix of this project's entry-point groups."""


class NameTakenError(InputError):
    """A name that is registered twice; the message names both origins."""

    def __init__(self, message: str, registry: "Registry[Any]", name: str) -> None:
        super().__init__(message)
        self.registry = registry
        self.name = name


@dataclass(frozen=True)
class _Origin:
    """The module and package that register a thing.

    Args:
        package: name and version of the distribution; None for this project and for loose modules.
    """

    module: str
    package: tuple[str, str] | None = None
    builtin: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is this project."""
        return self.package is None and (self.builtin or self.module.partition(".")[0] == CORE)

    def may_be_of(self, entry: EntryPoint) -> bool:
        """Whether it is the module of an entry point, or another module of its package."""
        found = _origin_of(entry)
        return self.module == found.module or (self.package is not None and self.package == found.package)

    def __str__(self) -> str:
        if self.package is not None:
            return f"package {self.package[0]} {self.package[1]}"
        return "this project" if self.ours else f"module {self.module!r}"


_THIS_PROJECT = _Origin(CORE)


class Registry(Generic[T]):
    """Things of one sort by name. Other packages add theirs through an entry-point group.

    A plug-in that can't be imported is named in one warning, and fails only a run that asks for what it should provide.
    A plug-in that takes a name of this project is refused in the same way, and the name stays with this project, in
    either order of imports. A name that two plug-ins take stands for neither.

    Args:
        group: entry-point group; loading one of its entries must call `add`.
        builtin: imports the project's own things, which call `add`.
    """

    def __init__(self, *, noun: str, group: str, builtin: Callable[[], None]) -> None:
        self._noun = noun
        self._group = group
        self._builtin = builtin
        self._things: dict[str, T] = {}
        self._origins: dict[str, _Origin] = {}
        self._being_loaded: _Origin | None = None
        self._started = False
        # A module that is being loaded may look a name up, so the lock must be reentrant.
        self._loading = threading.RLock()
        self._failure: Exception | None = None
        self._broken: list[str] = []
        # Names that two plug-ins register: it is not known which of them is meant.
        self._contested: dict[str, str] = {}
        _registries.append(self)

    def add(self, name: str, thing: T, *, module: str | None = None) -> None:
        """Register a thing.

        Args:
            name: printable, without spaces at its ends, and not taken; a name of this project may replace a plug-in's.
            module: defines the thing; None for the module that calls.

        Raises:
            InputError: the name is not allowed or taken. The message names both packages, or both modules of one
                package.
        """
        if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
            raise InputError(f"{self._noun} {shown(name)}: allowed: printable characters, no spaces at the ends")
        origin = self._origin(module or _registering_module())
        first = self._origins.get(name)
        if first is not None:
            if first.ours or not origin.ours:
                raise self._taken(name, first, origin)
            # A plug-in was imported before this project's own things were asked for.
            self._refuse(name, first)
        self._things[name] = thing
        self._origins[name] = origin

    def find(self, name: str) -> T | None:
        """Look up what is registered so far, without loading anything; None where nothing has this name yet."""
        return self._things.get(name)

    def replace(self, name: str, thing: T, *, module: str | None = None) -> None:
        """Register a thing, and replace one that has its name, unless a plug-in would replace this project's."""
        origin = self._origin(module or _registering_module())
        first = self._origins.get(name)
        if first is not None and first.ours and not origin.ours:
            raise self._taken(name, first, origin)
        self._things[name] = thing
        self._origins[name] = origin

    def _taken(self, name: str, first: _Origin, origin: _Origin) -> NameTakenError:
        # Where one package registers it twice, its name says nothing; the modules do.
        both = f"{first} and by {origin}" if str(first) != str(origin) else f"{first.module} and by {origin.module}"
        stays = "; it stays this project's" if first.ours and not origin.ours else ""
        return NameTakenError(f"{self._noun} {name!r} is registered twice: by {both}{stays}", self, name)

    def _refuse(self, name: str, origin: _Origin) -> None:
        """Leave out what a plug-in has registered under a name of this project, and warn."""
        every = (one for distribution in distributions() for one in distribution.entry_points)
        entries = [one for one in every if one.group.startswith(_GROUPS) and origin.may_be_of(one)]
        entry = max(entries, key=lambda one: one.module == origin.module, default=None)
        where = "" if entry is None else f" (entry point {entry.group}: {entry.name} = {entry.value})"
        who = f"module {origin.module!r}" if entry is None else _described(entry)
        reason = (
            f"plug-in {who}{where} is left out with its {self._noun} {name!r}: the name is this project's, and stays so"
        )
        self._broken.append(reason)
        _warn((who, origin.module, name), reason)

    def get(self, name: str) -> T:
        """Look a name up.

        Raises:
            InputError: nothing has this name, or two plug-ins have. The message says what is allowed and which plug-ins
                can't be imported.
        """
        self._load()
        if name in self._contested:
            raise InputError(self._contested[name])
        if name not in self._things:
            reasons = "".join(f"; {one}" for one in self._broken)
            raise InputError(f"unknown {self._noun} {shown(name)}; {nearest(name, list(self))}{reasons}")
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._things.keys() - self._contested.keys()))

    def packages(self) -> dict[str, str]:
        """Return the versions of the plug-in packages that have registered things, by name."""
        self._load()
        return dict(sorted({origin.package for origin in self._origins.values() if origin.package is not None}))

    def broken(self) -> list[str]:
        """Describe each plug-in that can't be imported: its package, its entry point and the reason."""
        self._load()
        return list(self._broken)

    def _load(self) -> None:
        # Other threads wait until everything is loaded.
        with self._loading:
            self._load_once()

    def _load_once(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._started:
            return
        self._started = True
        try:
            self._being_loaded = _THIS_PROJECT
            self._builtin()
            for entry in entry_points(group=self._group):
                self._being_loaded = _origin_of(entry)
                self._import(entry)
        except Exception as error:
            # Otherwise the next look-up would find a registry that seems to be complete.
            self._failure = error
            raise
        finally:
            self._being_loaded = None

    def _import(self, entry: EntryPoint) -> None:
        try:
            entry.load()
        # A plug-in that fails, even by an exit, must not stop a run that does not need it.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            reason = (
                f"plug-in {_described(entry)} (entry point {self._group}: {entry.name} = {entry.value}) "
                f"can't be imported: {in_one_line(error)}"
            )
            if isinstance(error, NameTakenError) and not error.registry._origins[error.name].ours:
                error.registry._contested[error.name] = reason
            self._broken.append(reason)
            for registry in _registries:
                registry._forget_unfinished()
            # Warn once of each module of a package, even if several entry points name it.
            _warn((_described(entry), entry.module), reason)

    def _forget_unfinished(self) -> None:
        """Drop what modules registered before their import failed."""
        for name, origin in list(self._origins.items()):
            if origin.module not in sys.modules:
                del self._things[name], self._origins[name]

    def _origin(self, module: str) -> _Origin:
        if self._being_loaded is _THIS_PROJECT:
            return _Origin(module, builtin=True)
        # A plug-in's module may be imported before its entry point is loaded, or by another plug-in.
        package = distribution_of(sys.modules[module]) if module in sys.modules else None
        if package is None and self._being_loaded is not None and module.partition(".")[0] != CORE:
            return self._being_loaded
        return _Origin(module, package)


def plugin_versions() -> dict[str, str]:
    """Return the versions of the plug-in packages in all registries that were looked into, by name."""
    packages: dict[str, str] = {}
    for registry in _registries:
        if registry._started:
            packages |= registry.packages()
    return dict(sorted(packages.items()))


def import_submodules(package: ModuleType) -> None:
    """Import every module of a package, so that a new file is found without being listed; errors name the module."""
    for module in pkgutil.iter_modules(package.__path__):
        name = f"{package.__name__}.{module.name}"
        try:
            importlib.import_module(name)
        except (ImportError, SyntaxError) as error:
            raise InputError(f"module {name} of this project can't be imported: {in_one_line(error)}") from error


def _origin_of(entry: EntryPoint) -> _Origin:
    return _Origin(entry.module, None if entry.dist is None else (entry.dist.name, entry.dist.version))


def _warn(what: tuple[str, ...], reason: str) -> None:
    """Warn once of each subject."""
    # Workers of this process find the same defects and need not repeat the warning.
    if what not in _warned and multiprocessing.parent_process() is None:
        _warned.add(what)
        _log.warning("%s", reason)


def _described(entry: EntryPoint) -> str:
    return entry.module if entry.dist is None else f"package {entry.dist.name!r} {entry.dist.version}"


def _registering_module() -> str:
    """Find the module that calls `add`: the nearest one of another package, or one that is being imported."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        if _module_of(frame).partition(".")[0] != CORE:
            break
        frame = frame.f_back
    return _module_of(frame)


def _module_of(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name
