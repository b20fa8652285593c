"""How settings are read from YAML files and the command line."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from yaml.constructor import ConstructorError

from fedfisher_core.engine.errors import InputError, shortened, shown
from fedfisher_core.engine.files import read_regular
from fedfisher_core.settings.base import SECRET

MAX_CHARACTERS = 2**16
"""Longest text that is read."""

_MAX_DEPTH = 20
_MAX_DIGITS = 400
_MISREAD = re.compile(r"[-+]?0[0-9_]+|.*:.*")
_TAG = "tag:yaml.org,2002:"
_SCALARS = ("null", "bool", "int", "float", "str")
_NODES = {"seq": yaml.SequenceNode, "map": yaml.MappingNode} | dict.fromkeys(_SCALARS, yaml.ScalarNode)

M = TypeVar("M", bound=BaseModel)
_MOST_PROBLEMS = 5
_MAX_BYTES = 4 * MAX_CHARACTERS
_MAX_PARTS = 20
_MOST_NAMES = 70
CONFIGS = Path("configs")
"""The folder of a project's settings files."""


def read_yaml(text: str) -> Any:
    """Read one YAML document.

    Raises:
        InputError: says where the text is no YAML, or too long, too deep, or has a value of another kind.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"it has {len(text):,} characters; allowed: up to {MAX_CHARACTERS:,}")
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        reason = ", ".join(one for one in (error.context, error.problem) if one)
        raise InputError(f"{where}{' '.join(reason.split())}") from None
    except yaml.YAMLError as error:
        raise InputError(" ".join(str(error).split())) from None


class _Loader(yaml.SafeLoader):
    """Refuses what settings have no use for, and what YAML takes for something else than most people do."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node, at no great depth; a few aliases of aliases would stand for billions of values."""
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise _refused(mark, f"alias {shown(self.peek_event().anchor)}; allowed: to write the value out")
        if self._depth == _MAX_DEPTH:
            raise _refused(mark, f"values are nested too deeply; allowed: up to {_MAX_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Build what a node stands for."""
        kind = node.tag.removeprefix(_TAG)
        if not isinstance(node, _NODES.get(kind, ())):
            what = shown(node.value) if isinstance(node, yaml.ScalarNode) else "it"
            said = "allowed: null, true, false, numbers, and text (in quotes), lists and mappings"
            raise _refused(node.start_mark, f"{what} is a {shown(kind)}; {said}")
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, OverflowError):
            raise _refused(node.start_mark, f"{shown(node.value)} is no {kind}; allowed: text in quotes") from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping whose keys are names and differ."""
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key) if isinstance(key, yaml.ScalarNode) else None
            if isinstance(name, bool) or not isinstance(name, str | int):
                written = shown(key.value) if isinstance(key, yaml.ScalarNode) else "a list or a mapping"
                said = "allowed: text (in quotes) and whole numbers"
                raise _refused(key.start_mark, f"key {written} is no name; {said}")
            if name in seen:
                raise _refused(key.start_mark, f"key {shown(name)} stands there twice; allowed: once")
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Take the text of a number or a text."""
        text = super().construct_scalar(node)
        if node.tag in (f"{_TAG}int", f"{_TAG}float"):
            if len(text) > _MAX_DIGITS:
                said = f"{shown(text)} is a long number; allowed: up to {_MAX_DIGITS} characters"
                raise _refused(node.start_mark, said)
            if _MISREAD.fullmatch(text):
                raise _refused(
                    node.start_mark,
                    f"{shown(text)} is no plain number, as YAML counts in sixties after a colon and in eights "
                    "after a 0; allowed: digits without either, or text in quotes",
                )
        if any("\ud800" <= one <= "\udfff" for one in text):
            raise _refused(node.start_mark, f"{shown(text)} holds a lone surrogate, which is no character")
        return text


def _refused(mark: yaml.Mark, reason: str) -> ConstructorError:
    return ConstructorError(None, None, reason, mark)


def read_file(config: Path) -> dict[str, Any]:
    """Read a configuration file.

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
    """Say what is allowed in place of an unknown name, the nearest first."""
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
        key: where the settings stand, such as "methods.fedavg".
    """
    message = shortened(problem["msg"].removeprefix("Value error, "), longest=400)
    parts = [key] * bool(key) + [_part(one) for one in problem["loc"]]
    if parts and parts[-1] == "[key]":
        # The name is the value, and stands there a second time.
        return f"{'.'.join(parts[:-2])}: name {shown(problem['input'])}: {message}"
    place = ".".join(parts)
    if problem["type"] in ("model_type", "dict_type"):
        message = "must be a mapping of settings"
    if problem["type"] in ("tuple_type", "list_type"):
        given = problem["input"]
        message = "must be a list" + (f", such as [{shown(given)}]" if type(given) in (int, float, str) else "")
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
