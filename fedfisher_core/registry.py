"""Names to things: how datasets, models and methods are found, here and in other packages."""

import importlib
import logging
import multiprocessing
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import FrameType, ModuleType
from typing import Any, Generic, TypeVar

from fedfisher_core.configuration import nearest
from fedfisher_core.errors import InputError, shortened, shown
from fedfisher_core.sources import CORE, distribution_of

T = TypeVar("T")

_log = logging.getLogger("fedfisher.registry")
_registries: list["Registry[Any]"] = []
_warned: set[tuple[str, str]] = set()


class NameTakenError(InputError):
    """A name that is registered twice.

    Args:
        message: names both origins.
        registry: where it is taken.
        name: the name.
    """

    def __init__(self, message: str, registry: "Registry[Any]", name: str) -> None:
        super().__init__(message)
        self.registry = registry
        self.name = name


@dataclass(frozen=True)
class _Origin:
    """Who registers a thing.

    Args:
        module: the module that calls `add`.
        package: name and version of the distribution that holds it; None for this project and for loose modules.
        builtin: whether it is one of the things that come with the registry.
    """

    module: str
    package: tuple[str, str] | None = None
    builtin: bool = False

    def __str__(self) -> str:
        if self.package is not None:
            return f"package {' '.join(self.package)}"
        own = self.builtin or self.module.partition(".")[0] == CORE
        return "this project" if own else f"module {self.module!r}"


_THIS_PROJECT = _Origin(CORE)


class Registry(Generic[T]):
    """Things of one sort by name; other packages add theirs through an entry-point group.

    A plug-in that can't be imported is named in one warning, and stands in nobody's way but of those who ask for what
    it should provide.

    Args:
        noun: what the things are, for messages, such as "method".
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
        # What is loaded may look itself up, hence one that its holder can take again.
        self._loading = threading.RLock()
        self._failure: Exception | None = None
        self._broken: list[str] = []
        # Names that a plug-in wanted as well: nobody knows which of the two is meant.
        self._contested: dict[str, str] = {}
        _registries.append(self)

    def add(self, name: str, thing: T) -> None:
        """Register a thing.

        Args:
            name: a name that is still free.
            thing: what the name stands for.

        Raises:
            InputError: the name is taken; the message names both packages, or both modules of one.
        """
        origin = self._origin()
        if name in self._things:
            first = self._origins[name]
            # Two files of one project have one name to people outside of it.
            both = f"{first} and by {origin}" if str(first) != str(origin) else f"{first.module} and by {origin.module}"
            raise NameTakenError(f"{self._noun} {name!r} is registered twice: by {both}", self, name)
        self._things[name] = thing
        self._origins[name] = origin

    def find(self, name: str) -> T | None:
        """Look up what has been registered so far, and load nothing.

        Args:
            name: the name.

        Returns:
            The thing; None where nothing has this name yet.
        """
        return self._things.get(name)

    def replace(self, name: str, thing: T) -> None:
        """Register a thing, in the place of one that has its name.

        Args:
            name: the name.
            thing: what it stands for from now on.
        """
        self._things[name] = thing
        self._origins[name] = self._origin()

    def get(self, name: str) -> T:
        """Look a name up.

        Args:
            name: the name.

        Returns:
            The thing.

        Raises:
            InputError: nothing has this name, and the message says what is allowed and which plug-ins can't be
                imported; or two have it.
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
        """The plug-in packages whose things are registered.

        Returns:
            Version by name, in the order of names.
        """
        self._load()
        return dict(sorted({origin.package for origin in self._origins.values() if origin.package is not None}))

    def broken(self) -> list[str]:
        """The plug-ins that can't be imported.

        Returns:
            A sentence each, which names the package, its entry point and the reason.
        """
        self._load()
        return list(self._broken)

    def _load(self) -> None:
        # Other threads wait until all is there.
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
            # Else the next look-up would find a registry that seems to be complete.
            self._failure = error
            raise
        finally:
            self._being_loaded = None

    def _import(self, entry: EntryPoint) -> None:
        try:
            entry.load()
        # Whatever a plug-in does, an exit included, must not stop those that have no need of it.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            reason = (
                f"plug-in {_described(entry)} (entry point {self._group}: {entry.name} = {entry.value}) "
                f"can't be imported: {_first_line(error)}"
            )
            if isinstance(error, NameTakenError):
                error.registry._contested[error.name] = reason
            self._broken.append(reason)
            for registry in _registries:
                registry._forget_unfinished()
            _warn(entry, reason)

    def _forget_unfinished(self) -> None:
        """Drop what modules have registered whose import did not succeed."""
        for name, origin in list(self._origins.items()):
            if origin.module not in sys.modules:
                del self._things[name], self._origins[name]

    def _origin(self) -> _Origin:
        module = _registering_module()
        if self._being_loaded is _THIS_PROJECT:
            return _Origin(module, builtin=True)
        # A plug-in's module may be imported before its entry point is loaded, or by another plug-in.
        package = distribution_of(sys.modules[module]) if module in sys.modules else None
        if package is None and self._being_loaded is not None and module.partition(".")[0] != CORE:
            return self._being_loaded
        return _Origin(module, package)


def plugin_versions() -> dict[str, str]:
    """The plug-in packages behind all registries that were looked into.

    Returns:
        Version by name, in the order of names.
    """
    packages: dict[str, str] = {}
    for registry in _registries:
        if registry._started:
            packages |= registry.packages()
    return dict(sorted(packages.items()))


def import_submodules(package: ModuleType) -> None:
    """Import every module of a package, so that a new file is found without being listed anywhere.

    Args:
        package: the package.

    Raises:
        InputError: a module can't be imported; the message names it.
    """
    for module in pkgutil.iter_modules(package.__path__):
        name = f"{package.__name__}.{module.name}"
        try:
            importlib.import_module(name)
        except (ImportError, SyntaxError) as error:
            raise InputError(f"module {name} of this project can't be imported: {_first_line(error)}") from error


def _origin_of(entry: EntryPoint) -> _Origin:
    return _Origin(entry.module, None if entry.dist is None else (entry.dist.name, entry.dist.version))


def _warn(entry: EntryPoint, reason: str) -> None:
    """Warn once of each module of a package, whatever it should provide."""
    place = (_described(entry), entry.module)
    # Workers of this process find the same, and need not repeat it.
    if place not in _warned and multiprocessing.parent_process() is None:
        _warned.add(place)
        _log.warning("%s", reason)


def _described(entry: EntryPoint) -> str:
    return entry.module if entry.dist is None else f"package {entry.dist.name!r} {entry.dist.version}"


def _first_line(error: BaseException) -> str:
    line = shortened(str(error).partition("\n")[0])
    return line if isinstance(error, InputError) else f"{type(error).__name__}: {line}"


def _registering_module() -> str:
    """The module on whose behalf `add` is called: the nearest one of another package, or one that is being imported."""
    frame = sys._getframe(3)
    while frame.f_back is not None and frame.f_code.co_name != "<module>":
        if _module_of(frame).partition(".")[0] != CORE:
            break
        frame = frame.f_back
    return _module_of(frame)


def _module_of(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")
