"""Values that pydantic reads as numbers but are none: booleans, and text such as 0-4."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_LIKE_A_NUMBER = re.compile(r"[+-]?\d")


def require_numbers(given: Any, fields: Mapping[str, FieldInfo]) -> None:
    """Refuse booleans and text where a number is expected: pydantic reads true as 1, and 0-4 as -4.

    Text that is a number is allowed, since YAML reads 1e-3 as text.

    Args:
        given: settings by name, as they were written; anything but a mapping is not checked here.

    Raises:
        ValidationError: a value is or holds a boolean that the field's type does not name, or text that begins like a
            number where the type names numbers.
    """
    if not isinstance(given, Mapping):
        return
    for name, field in fields.items():
        if name not in given:
            continue
        values = list(_values_in(given[name]))
        if any(isinstance(one, bool) for one in values) and not _names(field.annotation, bool):
            raise _refused(name, given[name], "must be no boolean")
        texts = (one.strip() for one in values if isinstance(one, str))
        if any(_LIKE_A_NUMBER.match(one) and not _NUMBER.fullmatch(one) for one in texts) and any(
            _names(field.annotation, number) for number in (int, float)
        ):
            raise _refused(name, given[name], "is no number; allowed: numbers, several of them as in [0, 1, 2]")


def _values_in(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _values_in(one)
    else:
        yield value


def _names(annotation: Any, kind: type) -> bool:
    """Say whether a field's type names a type of values, or one of its values."""
    return (
        annotation in (kind, Any, object)
        or type(annotation) is kind
        or any(_names(one, kind) for one in get_args(annotation))
    )


def _refused(name: str, value: Any, reason: str) -> ValidationError:
    problem = InitErrorDetails(type=PydanticCustomError("no_number", reason), loc=(name,), input=value)
    return ValidationError.from_exception_data("settings", [problem])
