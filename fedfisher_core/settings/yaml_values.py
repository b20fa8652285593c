"""YAML that holds plain values: null, true and false, numbers, text, and lists and mappings of them.

Reading any text takes bounded time and memory, and ends with a value or an InputError.
"""

import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from fedfisher_core.engine.errors import InputError, shown

MAX_CHARACTERS = 2**16
"""Longest text that is read."""

_MAX_DEPTH = 20
_MAX_DIGITS = 400
_MISREAD = re.compile(r"[-+]?0[0-9_]+|.*:.*")
_TAG = "tag:yaml.org,2002:"
_SCALARS = ("null", "bool", "int", "float", "str")
_NODES = {"seq": yaml.SequenceNode, "map": yaml.MappingNode} | dict.fromkeys(_SCALARS, yaml.ScalarNode)


def read_yaml(text: str) -> Any:
    """Read one YAML document.

    Args:
        text: the document.

    Returns:
        Its value.

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
