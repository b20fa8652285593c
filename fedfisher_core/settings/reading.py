"""How settings are read from YAML files and the command line."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from fedfisher_core.engine.errors import InputError, shortened, shown
from fedfisher_core.engine.files import read_regular
from fedfisher_core.settings.base import SECRET
from fedfisher_core.settings.yaml_values import MAX_CHARACTERS, read_yaml

M = TypeVar("M", bound=BaseModel)

_MOST_PROBLEMS = 5
_MAX_BYTES = 4 * MAX_CHARACTERS
_MAX_PARTS = 20
_MOST_NAMES = 70

CONFIGS = Path("configs")
"""The folder of a project's settings files."""


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
        content = read_yaml(read_regular(config, limit=_MAX_BYTES, through_links=True).decode())
    except FileNotFoundError:
        raise InputError(f"config {shown(str(config))} does not exist; {_instead(config)}") from None
    except (OSError, UnicodeDecodeError, InputError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"config {shown(str(config))} can't be read: {reason}") from None
    if not isinstance(content, dict):
        raise InputError(f"config {shown(str(config))} must hold a mapping of settings, not {type(content).__name__}")
    return content


def _instead(config: Path) -> str:
    """Say what to do where a configuration file is missing: the file of the nearest name, or how to write one."""
    found = {path.stem: path for folder in (CONFIGS, config.parent) for path in folder.glob("*.yaml")}
    close = difflib.get_close_matches(config.stem[:200], found, n=1)
    if close:
        return f"did you mean {str(found[close[0]])!r}?"
    return "`fedfisher init config NAME` writes one"


def validate(model: type[M], content: Mapping[str, Any]) -> M:
    """Validate settings.

    Args:
        model: what they are to be.
        content: nested settings as YAML or JSON gives them.

    Returns:
        The settings.

    Raises:
        InputError: names the first keys that are unknown (with the nearest known one) or whose value is not allowed.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = _without_echoes(error.errors(include_url=False))
        lines = [_explain(model, dict(problem)) for problem in problems[:_MOST_PROBLEMS]]
        more = [f"and {len(problems) - _MOST_PROBLEMS} more"] if len(problems) > _MOST_PROBLEMS else []
        raise InputError("\n".join(lines + more)) from None


def nearest(name: str, known: Collection[str]) -> str:
    """Say what is allowed in place of an unknown name, the nearest first.

    Args:
        name: the unknown name.
        known: the names that exist.

    Returns:
        A phrase for an error message.
    """
    close = difflib.get_close_matches(name[:200], known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"{hint}allowed: {', '.join(sorted(known)[:_MOST_NAMES]) or 'none'}{more}"


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
        raise InputError(f"--set {shown(text)} must have the form key=value")
    try:
        value = read_yaml(written)
    except InputError as error:
        raise InputError(f"--set {shown(text)}: the value is not YAML: {error}") from None
    *parents, last = key.split(".")
    if len(parents) >= _MAX_PARTS:
        raise InputError(f"--set {shown(text)}: the key has {len(parents) + 1:,} parts; allowed: up to {_MAX_PARTS}")
    node = content
    for parent in parents:
        child = node.setdefault(parent, {})
        if child is None:
            child = node[parent] = {}
        if not isinstance(child, dict):
            raise InputError(f"--set {shown(text)}: {shown(parent)} is a value, not a group of settings")
        node = child
    node[last] = value


def explained(problem: Mapping[str, Any], *, key: str = "") -> str:
    """Turn one of pydantic's errors into a sentence.

    Args:
        problem: the error.
        key: where the settings stand, such as "methods.fedavg".

    Returns:
        The key, the value and what is allowed.
    """
    message = shortened(problem["msg"].removeprefix("Value error, "), longest=400)
    parts = [key] * bool(key) + [_part(one) for one in problem["loc"]]
    if parts and parts[-1] == "[key]":
        # The name is the value, and stands there a second time.
        return f"{'.'.join(parts[:-2])}: name {shown(problem['input'])}: {message}"
    place = ".".join(parts)
    if problem["type"] in ("model_type", "dict_type"):
        message = "must be a mapping of settings"
    value = "" if problem["type"] in ("missing", SECRET) or not place else f"={shown(problem['input'])}"
    return f"{place}{value}: {message}" if place else message


def _without_echoes(problems: Sequence[Any]) -> list[Any]:
    """Leave out that a list is too short where its values were refused, after which pydantic counts it as empty."""
    places = [one["loc"] for one in problems]
    return [
        one
        for one in problems
        if one["type"] != "too_short" or not any(place[: len(one["loc"])] == one["loc"] != place for place in places)
    ]


def _explain(model: type[BaseModel], problem: dict[str, Any]) -> str:
    """Turn one of pydantic's errors into a sentence that names key, value and what is allowed."""
    if problem["type"] != "extra_forbidden":
        return explained(problem)
    *parents, last = problem["loc"]
    place = ".".join(map(_part, problem["loc"]))
    return f"unknown setting {place!r}; {nearest(str(last), list(_model_at(model, parents).model_fields))}"


def _part(part: str | int) -> str:
    """Write a part of a key, which a file can choose as it likes."""
    text = str(part)
    return text if text.isprintable() and len(text) <= 100 else shown(text, longest=100)


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
        model = next(_models_in(annotation))
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """List the settings that an annotation holds, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
