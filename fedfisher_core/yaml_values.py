"""YAML that holds plain values: null, true and false, numbers, text, and lists and mappings of them.

Whatever the text is, reading it takes bounded time and memory, and ends with a value or an InputError.
"""

from typing import Any

import yaml

from fedfisher_core.errors import InputError, shown

MAX_CHARACTERS = 2**17
"""Longest text that is read."""

_MAX_DEPTH = 20
_MAX_VALUES = 10_000
_MAX_DIGITS = 400
_TAG = "tag:yaml.org,2002:"
_PLAIN = ("null", "bool", "int", "float", "str")


def read_yaml(text: str) -> Any:
    """Read one YAML document.

    Args:
        text: the document.

    Returns:
        Its value; where an alias stands, a copy of what it stands for.

    Raises:
        InputError: says where the text is no YAML, or too long, too deep, or has a value of another kind.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"it has {len(text):,} characters; allowed: up to {MAX_CHARACTERS:,}")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else loader.value(node)
    except yaml.MarkedYAMLError as error:
        reason = ", ".join(one for one in (error.context, error.problem) if one)
        raise _refused(error.problem_mark or error.context_mark, reason) from None
    except yaml.YAMLError as error:
        raise InputError(" ".join(str(error).split())) from None


class _Loader(yaml.SafeLoader):
    """Counts while it composes, so that what is too much is never built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._count = 0
        # Of every node that is complete, itself included.
        self._values_in: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node, a copy where an alias stands."""
        event = self.peek_event()
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if node not in self._values_in:
                raise _refused(event.start_mark, f"{shown(event.anchor)} contains itself")
            self._add(self._values_in[node], event.start_mark)
            return node
        before = self._count
        self._add(1, event.start_mark)
        if self._depth == _MAX_DEPTH:
            raise _refused(event.start_mark, f"values are nested too deeply; allowed: up to {_MAX_DEPTH} levels")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            self._values_in[node] = self._count - before
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping whose keys differ."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            name = key.value if key.tag == f"{_TAG}merge" else self._key(key)
            if name in seen:
                raise _refused(key.start_mark, f"key {shown(name)} stands there twice; allowed: once")
            seen.add(name)
        return node

    def value(self, node: yaml.Node) -> Any:
        """Build what a node stands for."""
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(one) for one in node.value]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            self.flatten_mapping(node)
            return {self._key(key): self.value(one) for key, one in node.value}
        raise _refused(node.start_mark, f"a {shown(node.tag.removeprefix(_TAG))}; allowed: lists and mappings")

    def _key(self, node: yaml.Node) -> str | int:
        key = self._scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(key, bool) or not isinstance(key, str | int):
            written = shown(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
            raise _refused(node.start_mark, f"key {written} is no name; allowed: text (in quotes) and whole numbers")
        return key

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_TAG)
        if kind not in _PLAIN:
            raise _refused(
                node.start_mark,
                f"{shown(node.value)} is a {shown(kind)}; allowed: null, true, false, numbers, and text (in quotes)",
            )
        if kind in ("int", "float") and len(node.value) > _MAX_DIGITS:
            raise _refused(
                node.start_mark, f"{shown(node.value)} is a long number; allowed: up to {_MAX_DIGITS} characters"
            )
        try:
            value = self.construct_object(node)
        except (ValueError, LookupError, OverflowError):
            raise _refused(node.start_mark, f"{shown(node.value)} is no {kind}; allowed: text in quotes") from None
        if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
            raise _refused(node.start_mark, f"{shown(value)} holds a lone surrogate, which is no character")
        return value

    def _add(self, values: int, mark: yaml.Mark) -> None:
        self._count += values
        if self._count > _MAX_VALUES:
            raise _refused(
                mark, f"there are too many values; allowed: up to {_MAX_VALUES:,}, copies by aliases included"
            )


def _refused(mark: yaml.Mark | None, reason: str) -> InputError:
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return InputError(f"{where}{' '.join(reason.split())}")
