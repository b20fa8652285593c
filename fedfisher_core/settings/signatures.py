"""Settings of methods and statistics: the keyword arguments of their functions."""

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    create_model,
    model_validator,
)

from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.settings.numbers_only import require_numbers
from fedfisher_core.settings.reading import explained, nearest

S = TypeVar("S", bound=BaseModel)

_LARGEST = {int: 10**9, float: 1e30}


class _Keywords(BaseModel):
    """Settings with bounds on all numbers: without bounds, a typing error could start a run that never ends."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_only(cls, given: Any) -> Any:
        require_numbers(given, cls.model_fields)
        return given

    @model_validator(mode="before")
    @classmethod
    def _bounded(cls, given: Any) -> Any:
        for number in _numbers_in(given):
            largest = _LARGEST[type(number)]
            if largest < abs(number) < math.inf:
                raise ValueError(f"{shown(number)} is among them; allowed: from {-largest:g} to {largest:g}")
        return given


def _numbers_in(given: Any) -> Iterator[int | float]:
    if type(given) in _LARGEST:
        yield given
    elif isinstance(given, Mapping | list | tuple):
        for one in given.values() if isinstance(given, Mapping) else given:
            yield from _numbers_in(one)


def settings_of(
    function: Callable[..., Any], *, owner: str, name: str, reserved: Collection[str] = ()
) -> type[BaseModel]:
    """Make a model of a function's keyword-only arguments, with their types and defaults.

    Args:
        function: its other arguments need no types.
        owner: what has the settings, for messages, such as "method".
        name: of the owner.

    Raises:
        InputError: an argument has no type, no default, or a reserved name.
    """
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name in reserved:
            raise InputError(f"{owner} {name!r}: argument {parameter.name!r}; allowed: any name but {tuple(reserved)}")
        if inspect.Parameter.empty in (parameter.annotation, parameter.default):
            raise InputError(f"{owner} {name!r}: argument {parameter.name!r} needs a type and a default")
        fields[parameter.name] = (_evaluate(parameter.annotation, function), parameter.default)
    return create_model(name, __base__=_Keywords, **fields)


def choose(settings: type[S], given: Any, *, key: str, besides: Collection[str] = ()) -> S:
    """Read settings, with defaults for those that are not given.

    Args:
        given: settings that differ from the defaults, by name.
        key: of the group of settings, for messages, such as "methods.fedavg".
        besides: further names of the group, for messages.

    Raises:
        InputError: a setting is unknown, or its value is not allowed; the message has the setting's key.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{key}={shown(given)}: must be a mapping of settings")
    known = list(settings.model_fields)
    for name in given:
        if name not in known:
            raise InputError(f"unknown setting {shown(f'{key}.{name}')}; {nearest(str(name), [*known, *besides])}")
    try:
        return settings.model_validate(dict(given))
    except ValidationError as error:
        raise InputError(explained(error.errors(include_url=False)[0], key=key)) from None


def _evaluate(annotation: Any, function: Callable[..., Any]) -> Any:
    """Look up a type that is written as text, in the function's module.

    `inspect` can do so only for all arguments at once, and a statistic's first argument may name a class that only type
    checkers import.
    """
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, inspect.unwrap(function).__globals__)
