"""What all settings have in common: their base class, types of values with bounds, and what is a number."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_LIKE_A_NUMBER = re.compile(r"[+-]?\d")

MAX_POINTS = 10_000
"""Combinations of data set, network, split and seed."""
MAX_UPLOADS = 100_000
"""Uploads of all clients to all methods, in all seeded settings."""
SECRET = "secret"
"""The type of errors whose value must not be shown."""
FILE = "sqlite:///"
"""Prefix of the address of a database's file."""
LEADERBOARD = "leaderboard"
"""Name of the leaderboard's default folder."""
_MAX_PART_BYTES = 255
_MAX_PATH_BYTES = 4000
Momentum = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=1, le=10**6)]
Steps = Annotated[int, Field(ge=1, le=10**7)]
Examples = Annotated[int, Field(ge=0, le=10**9)]
Positive = Annotated[float, Field(gt=0, le=1e30)]
Nonnegative = Annotated[float, Field(ge=0, le=1e30)]
_T = TypeVar("_T")


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


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("allowed: printable characters, no control characters and no surrogates")
    return value


def _paragraphs(value: str) -> str:
    if not all(one.isprintable() or one in "\n\t" for one in value):
        raise ValueError("allowed: printable characters, tabs and line breaks")
    return value


def _name(value: str) -> str:
    if value == LEADERBOARD:
        raise ValueError("is the leaderboard's folder; allowed: another name")
    return value


def _label(value: str) -> str:
    _printable(value)
    if not value or value != value.strip():
        raise ValueError("allowed: at least one character, no spaces at the ends")
    return value


def _path(value: Path) -> Path:
    if value.parts[:1] and value.parts[0].startswith("~"):
        raise ValueError("begins with ~, which only a shell knows; allowed: a folder from / or from here")
    written = str(value)
    _printable(written)
    if len(os.fsencode(written)) > _MAX_PATH_BYTES:
        raise ValueError(f"has {len(os.fsencode(written)):,} bytes; allowed: up to {_MAX_PATH_BYTES:,}")
    longest = max((len(os.fsencode(part)) for part in value.parts), default=0)
    if longest > _MAX_PART_BYTES:
        raise ValueError(f"has a part of {longest} bytes; allowed: up to {_MAX_PART_BYTES} each")
    return value


def _named(value: Any) -> Any:
    if value == "":
        raise ValueError("allowed: a folder, such as . for the working directory")
    return value


Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200, description="folder name of the report"),
    AfterValidator(_name),
]
Label = Annotated[str, Field(max_length=100), AfterValidator(_label)]
Line = Annotated[str, Field(max_length=1000), AfterValidator(_printable)]
Paragraphs = Annotated[str, Field(max_length=100_000), AfterValidator(_paragraphs)]
Folder = Annotated[Path, BeforeValidator(_named), AfterValidator(_path)]


def as_folder(value: str | Path) -> Path:
    """Check a folder of a setting that may also be something else; `ValueError` where it is none."""
    return _path(Path(_named(value)))


def without_credentials(address: Any) -> Any:
    """Refuse an address that holds a user or a password, since reports show all settings.

    A user may write a password in any way, such as with a slash in it, so every @ is refused.

    Args:
        address: of a server, before any other check; or of a database's file, whose path may have an @.

    Raises:
        PydanticCustomError: of the type `SECRET`, which is shown without the value.
    """
    if "@" in str(address) and not str(address).startswith(FILE):
        raise PydanticCustomError(
            SECRET, "must hold no user and no password, nor any other @; they are read from the environment"
        )
    return address


@dataclass(frozen=True)
class Forms:
    """Lets a setting be given in further forms, in files and as a deployment's parameter.

    Args:
        read: converts any form to that of the settings; it raises ValueError for a value of no known form.
        further: makes the JSON schemas of the further forms from that of the settings.
    """

    read: Callable[[Any], Any]
    further: Callable[[dict[str, Any]], list[dict[str, Any]]]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Convert a value before it is checked."""
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allow all forms."""
        found = handler(schema)
        return {"anyOf": [found, *self.further(found)]}


def _as_tuple(value: Any) -> Any:
    return value if value is None or isinstance(value, list | tuple) else (value,)


def _as_mapping(value: Any) -> Any:
    if isinstance(value, str):
        return {value: {}}
    if not isinstance(value, list | tuple):
        return value
    if not all(isinstance(key, str) for key in value) or len(set(value)) < len(value):
        raise ValueError("allowed: names that differ, or a mapping of names to settings")
    return {key: {} for key in value}


Several = Annotated[tuple[_T, ...], Forms(_as_tuple, lambda found: [found["items"]])]
"""A setting with several values; a single value may be given alone."""

ByLabel = Annotated[
    dict[Label, _T], Forms(_as_mapping, lambda _: [{"type": "string"}, {"type": "array", "items": {"type": "string"}}])
]
"""A mapping of labels to settings; a list of labels, or a single label, may be given instead."""


class Strict(BaseModel):
    """Frozen settings that refuse keys they do not know."""

    # A number that is not finite is kept until it is refused, so that a message can show it.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")

    @model_validator(mode="before")
    @classmethod
    def _numbers_only(cls, given: Any) -> Any:
        require_numbers(given, cls.model_fields)
        return given


class WithLater(Strict):
    """Settings some of which were added later: their defaults are not written, so that names of older settings stay."""

    later: ClassVar[frozenset[str]]

    @model_serializer(mode="wrap")
    def _without_later_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        at_default = {name for name in self.later if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in handler(self).items() if name not in at_default}
