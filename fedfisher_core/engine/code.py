"""Digests of the modules of methods, statistics, models and other registered things.

A digest is of a module's syntax tree. It leaves out what changes no result: comments, docstrings, type annotations, and
the arguments of raised errors. For modules of this project, it leaves out where they and what they import lie.
"""

import ast
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.installed import CORE, belong_together, locate, module_name, top_of, unwrapped

_BLOCKS = frozenset({"body", "orelse", "finalbody"})
_DROPPED_FIELDS = frozenset({"ctx", "type_comment", "returns", "annotation"})


def code_of(*made_by: Callable[..., Any] | type | ModuleType) -> str:
    """Digest the modules that define registered things, as 16 hexadecimal digits.

    A thing of this project is named by its own module alone. A thing of a plug-in is named by that module and the
    modules of the same plug-in that it imports, since a plug-in has no version to raise.

    Raises:
        InputError: the source of a thing can't be read.
    """
    modules = {module for thing in made_by for module in modules_of(_readable_module(thing))}
    # Two modules of a plug-in that exchange their content are other code.
    digests = sorted({f"{'' if top_of(one) == CORE else one}{_source(one)[0]}" for one in modules})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


@functools.cache
def modules_of(name: str) -> tuple[str, ...]:
    """List the module that defines a thing; for a plug-in, also the modules of the same plug-in that it imports.

    Raises:
        InputError: one of these is not written in Python.
    """
    if top_of(name) == CORE:
        return (name,)
    found, todo = {name}, [name]
    while todo:
        for other in _source(todo.pop())[1]:
            own = top_of(other) == top_of(name) or (
                top_of(other) != CORE and belong_together(top_of(other), top_of(name))
            )
            if own and other not in found and (file := _file_of(other)) is not None:
                _require_python(other, file)
                found.add(other)
                todo.append(other)
    return tuple(sorted(found))


def digest_of_source(text: bytes, *, origins: bool) -> str:
    """Digest the syntax tree of a module's source, as 64 hexadecimal digits.

    Args:
        origins: whether it sees from which modules names are imported.

    Raises:
        SyntaxError, ValueError: it is not Python.
    """
    # This loop is faster than ast.dump. Empty fields are left out, so that a field that a later Python adds changes no
    # digest.
    words: list[str] = []
    waiting: list[Any] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        kind = node.__class__
        if kind is list:
            words.append(str(len(node)))
            waiting += node
        elif kind is ast.Constant:
            # Unlike repr, ascii does not depend on the Unicode version of this Python.
            words.append(ascii(node.value))
        elif not isinstance(node, ast.AST):
            words.append(ascii(node))
        else:
            words.append(kind.__name__)
            for field in _fields(kind, origins):
                value = getattr(node, field, None)
                if field in _BLOCKS and value.__class__ is list:
                    value = list(_statements(value))
                if isinstance(node, ast.Raise) and isinstance(value, ast.Call):
                    value = value.func
                if value is None or value == []:
                    continue
                words.append(f".{field}")
                if value.__class__ is str:
                    words.append(value)
                else:
                    waiting.append(value)
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def _fields(kind: type[ast.AST], origins: bool) -> tuple[str, ...]:
    dropped = _DROPPED_FIELDS
    if kind is ast.ImportFrom and not origins:
        # The origin of a name changes with every move of a module.
        dropped |= {"module", "level"}
    if kind is ast.Assert:
        dropped |= {"msg"}
    return tuple(field for field in kind._fields if field not in dropped)


def _statements(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that do something when they run: no docstrings, nothing for type checkers."""
    for statement in block:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=otherwise):
                yield from _statements(otherwise)
            case _:
                yield statement


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Name modules that may be imported; a name that is imported from a module may be a module too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                # One dot is the package itself; every further dot is one package higher.
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                module = ".".join([*base, module] if module else base)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@functools.cache
def _source(name: str) -> tuple[str, tuple[str, ...]]:
    """Digest a module, and name the modules that it may import."""
    location = locate(name)
    assert location is not None
    assert location.file is not None
    package = name if location.folders is not None else name.rpartition(".")[0]
    try:
        text = location.file.read_bytes()
        if top_of(name) == CORE:
            return digest_of_source(text, origins=False), ()
        return digest_of_source(text, origins=True), tuple(_imported(ast.parse(text), package))
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"the source of module {name!r} ({location.file}) can't be read: {error}") from error


def _readable_module(thing: Any) -> str:
    thing = unwrapped(thing)
    name = module_name(thing)
    # Code that was typed in or exec'd has a file like "<stdin>", even if its module came from a real file.
    code = getattr(thing, "__code__", None)
    typed_in = code is not None and code.co_filename.startswith("<")
    file = None if typed_in or not name else _file_of(name)
    if file is None or file.suffix != ".py" or not file.is_file():
        called = getattr(thing, "__qualname__", name)
        raise InputError(
            f"the source of {called!r} (module {name or None!r}) can't be read, so its results can't be stored; "
            "put it into a separate module (a .py file)"
        )
    return name


@functools.cache
def _file_of(name: str) -> Path | None:
    try:
        location = locate(name)
    except (ImportError, ValueError):
        return None
    return None if location is None else location.file


def _require_python(name: str, file: Path) -> None:
    if file.suffix != ".py":
        raise InputError(
            f"the source of module {name!r} ({file}) can't be read, so results that need it can't be stored; "
            "write it in Python, in a .py file"
        )
