"""Properties that are computed once, when they are first read."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

V = TypeVar("V")


class computed_once(Generic[V]):
    """A property that keeps its first value, in objects that have a `__dict__`.

    Until Python 3.12, `functools.cached_property` holds one lock for all objects of a class, so parallel clients would
    wait for each other. Here, two threads that read the property of one object at once may both compute it.
    """

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> V: ...

    def __get__(self, instance: object, owner: type) -> Self | V:
        if instance is None:
            return self
        # This class has no `__set__`, so Python finds the value in `vars(instance)` first from now on.
        value: V = vars(instance).setdefault(self._name, self._compute(instance))
        return value
