"""How settings are read from YAML files and the command line."""

import difflib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from fedfisher_core.errors import InputError

M = TypeVar("M", bound=BaseModel)


def read_file(config: Path) -> dict[str, Any]:
    """Read a configuration file.

    Args:
        config: a YAML file.

    Returns:
        Its settings as they stand there.

    Raises:
        InputError: the file can't be read, or holds no mapping.
    """
    try:
        content = yaml.safe_load(config.read_text())
    except FileNotFoundError:
        raise InputError(f"config {str(config)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"config {str(config)!r} can't be read: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"config {str(config)!r} must hold a mapping of settings, not {type(content).__name__}")
    return content


def validate(model: type[M], content: Mapping[str, Any]) -> M:
    """Validate settings.

    Args:
        model: what they are to be.
        content: nested settings as YAML or JSON gives them.

    Returns:
        The settings.

    Raises:
        InputError: names every key that is unknown (with the nearest known one) or whose value is not allowed.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError("\n".join(_explain(model, dict(problem)) for problem in error.errors())) from None


def nearest(name: str, known: Sequence[str]) -> str:
    """Say what is allowed in place of an unknown name, the nearest first.

    Args:
        name: the unknown name.
        known: the names that exist.

    Returns:
        A phrase for an error message.
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(sorted(known))}"


def override(content: dict[str, Any], text: str) -> None:
    """Change one of the settings of a configuration file.

    Args:
        content: the nested settings, changed in place.
        text: `key=value` with a dotted key and a YAML value.

    Raises:
        InputError: the text has another form, or the key leads through a value.
    """
    key, separator, written = text.partition("=")
    if not separator or not key:
        raise InputError(f"--set {text!r} must have the form key=value")
    try:
        value = yaml.safe_load(written)
    except yaml.YAMLError as error:
        raise InputError(f"--set {text!r}: the value is not YAML: {error}") from None
    *parents, last = key.split(".")
    node = content
    for parent in parents:
        child = node.setdefault(parent, {})
        if child is None:
            child = node[parent] = {}
        if not isinstance(child, dict):
            raise InputError(f"--set {text!r}: {parent!r} is a value, not a group of settings")
        node = child
    node[last] = value


def _explain(model: type[BaseModel], problem: dict[str, Any]) -> str:
    """Turn one of pydantic's errors into a sentence that names key, value and what is allowed."""
    key = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        *parents, last = problem["loc"]
        return f"unknown setting {key!r}; {nearest(str(last), list(_model_at(model, parents).model_fields))}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] in ("model_type", "dict_type"):
        message = "must be a mapping of settings"
    value = "" if problem["type"] == "missing" or not key else f"={problem['input']!r}"
    return f"{key}{value}: {message}" if key else message


def _model_at(model: type[BaseModel], path: Sequence[Any]) -> type[BaseModel]:
    """Find the settings that a path leads to."""
    parts = iter(path)
    for part in parts:
        if isinstance(part, int):
            # An element of a list: the annotation before it named the elements' model.
            continue
        annotation = model.model_fields[str(part)].annotation
        if get_origin(annotation) is dict:
            # Settings by name: the next part is the name.
            next(parts, None)
        if get_origin(annotation) in (Union, types.UnionType, tuple, dict):
            annotation = next(a for a in get_args(annotation) if isinstance(a, type) and issubclass(a, BaseModel))
        assert isinstance(annotation, type)
        model = annotation
    return model
