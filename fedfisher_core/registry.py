"""Names to things: how datasets, models and methods are found, here and in other packages."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from types import ModuleType
from typing import Generic, TypeVar

from fedfisher_core.configuration import nearest
from fedfisher_core.errors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name; other packages add theirs through an entry-point group.

    Args:
        kind: what the things are, for messages, such as "method".
        group: entry-point group; loading one of its entries must call `add`.
        builtin: imports the project's own things, which call `add`.
    """

    def __init__(self, *, kind: str, group: str, builtin: Callable[[], None]) -> None:
        self._kind = kind
        self._group = group
        self._builtin = builtin
        self._things: dict[str, T] = {}
        self._loaded = False

    def add(self, name: str, thing: T) -> None:
        """Register a thing.

        Args:
            name: a name that is still free.
            thing: what the name stands for.

        Raises:
            InputError: the name is taken.
        """
        if name in self._things:
            raise InputError(f"{self._kind} {name!r} is registered twice")
        self._things[name] = thing

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

    def get(self, name: str) -> T:
        """Look a name up.

        Args:
            name: the name.

        Returns:
            The thing.

        Raises:
            InputError: nothing has this name; the message says what is allowed.
        """
        self._load()
        if name not in self._things:
            raise InputError(f"unknown {self._kind} {name!r}; {nearest(name, list(self._things))}")
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._things))

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        self._builtin()
        for entry in entry_points(group=self._group):
            entry.load()


def import_submodules(package: ModuleType) -> None:
    """Import every module of a package, so that a new file is found without being listed anywhere.

    Args:
        package: the package.
    """
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
