"""What a module says, whatever its comments and formatting: a digest of its syntax tree, and its imports."""

import ast
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_BLOCKS = frozenset({"body", "orelse", "finalbody"})
_DROPPED_FIELDS = frozenset({"ctx", "type_comment"})
"""What the place in the tree tells already, or what no result depends on."""


@dataclass(frozen=True)
class Import:
    """An imported name.

    Args:
        module: the module, absolute.
        name: what is imported of it; None for the module itself, `*` for everything.
        bound: the name that the importing module calls it by.
    """

    module: str
    name: str | None
    bound: str


@dataclass(frozen=True)
class Source:
    """What a module says.

    Args:
        digest: of its syntax tree without docstrings.
        imports: all that it imports when it runs, also inside functions.
    """

    digest: str
    imports: tuple[Import, ...]


def read_source(text: bytes, package: str) -> Source:
    """Read what a module says.

    Docstrings do not count, nor does what stands under `if TYPE_CHECKING`.

    Args:
        text: of its file.
        package: that relative imports start from; the module itself where it is a package.

    Returns:
        Its digest and imports.

    Raises:
        SyntaxError: the text is not Python.
        ValueError: the text is not Python, or not text.
    """
    # A walk of our own is faster than ast.dump. Empty fields are left out, so that a field that a later Python adds
    # changes no digest.
    words: list[str] = []
    imports: list[Import] = []
    waiting: list[Any] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        kind = node.__class__
        if kind is list:
            words.append(str(len(node)))
            waiting += node
        elif kind is ast.Constant:
            # Unlike repr, ascii does not depend on which characters this Python's Unicode can print.
            words.append(ascii(node.value))
        elif not isinstance(node, ast.AST):
            words.append(ascii(node))
        else:
            words.append(kind.__name__)
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += _imports(node, package)
            for field in _fields(kind):
                value = getattr(node, field, None)
                if field in _BLOCKS and value.__class__ is list:
                    value = list(_statements(value))
                if value is None or value == []:
                    continue
                words.append(f".{field}")
                if value.__class__ is str:
                    words.append(value)
                else:
                    waiting.append(value)
    return Source(hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest(), tuple(imports))


@functools.cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(field for field in kind._fields if field not in _DROPPED_FIELDS)


def _statements(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that do something when they run: no docstrings, nothing for type checkers."""
    for statement in block:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=otherwise):
                yield from _statements(otherwise)
            case _:
                yield statement


def _imports(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, None, alias.asname or alias.name.partition(".")[0])
        return
    module = node.module or ""
    if node.level:
        # One dot is the package itself, every further one a package above.
        base = package.split(".")[: len(package.split(".")) - node.level + 1]
        module = ".".join([*base, module] if module else base)
    for alias in node.names:
        yield Import(module, alias.name, alias.asname or alias.name)
