"""Properties that are computed when they are first asked for."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

V = TypeVar("V")


class computed_once(Generic[V]):
    """A property that keeps its first value, in objects that have a `__dict__`.

    `functools.cached_property` holds one lock for all objects of a class until Python 3.12: clients that are computed
    side by side would wait for each other. Here two threads that ask one object at once may both compute.

    Args:
        compute: the method.
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
        # Python looks here first from now on, as this class has no `__set__`.
        return vars(instance).setdefault(self._name, self._compute(instance))
