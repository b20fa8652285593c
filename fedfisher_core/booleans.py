"""Booleans in the place of numbers."""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic.fields import FieldInfo

from fedfisher_core.errors import shown


def require_no_booleans(given: Any, fields: Mapping[str, FieldInfo]) -> None:
    """Refuse true and false where a number is meant: pydantic takes them for 1 and 0.

    Args:
        given: settings by name, as they were written; what is no mapping is left to others.
        fields: of the settings.

    Raises:
        ValueError: a value is or holds a boolean, which the field's type does not name.
    """
    if not isinstance(given, Mapping):
        return
    for name, field in fields.items():
        if name in given and _has_boolean(given[name]) and not _names_boolean(field.annotation):
            raise ValueError(f"{name}={shown(given[name])}: must be no boolean")


def _has_boolean(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_has_boolean, value)))


def _names_boolean(annotation: Any) -> bool:
    return (
        annotation in (bool, Any, object)
        or isinstance(annotation, bool)
        or any(map(_names_boolean, get_args(annotation)))
    )
