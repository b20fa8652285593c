"""Keyword arguments as settings: how methods and statistics say what can be chosen of them."""

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

from fedfisher_core.booleans import require_no_booleans
from fedfisher_core.configuration import explained, nearest
from fedfisher_core.errors import InputError, shown

S = TypeVar("S", bound=BaseModel)

_LARGEST = {int: 10**9, float: 1e30}


class _Keywords(BaseModel):
    """Settings whose types seldom have bounds; without any, a slip of the pen makes a run that never ends."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_booleans(cls, given: Any) -> Any:
        require_no_booleans(given, cls.model_fields)
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
    """Make a model of a function's keyword-only arguments.

    Args:
        function: the function; its other arguments need no types.
        owner: what has the settings, for messages, such as "method".
        name: its name.
        reserved: names that it must not use.

    Returns:
        The model, with the arguments' types and defaults.

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
    """Choose settings.

    Args:
        settings: the model.
        given: those that differ from the defaults, by name.
        key: where they stand, for messages, such as "methods.fedavg".
        besides: further names that may stand there, for messages.

    Returns:
        All settings.

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

    `inspect` can do so for all arguments at once only, and a statistic's first may name a class for type checkers
    alone.
    """
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, inspect.unwrap(function).__globals__)
