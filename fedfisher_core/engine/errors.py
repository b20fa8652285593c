"""Errors that a user can cause, or must know by name."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedfisher_core.engine.failures import FailedJob


class InputError(ValueError):
    """A setting, a file or a combination that can't be used; the message names it and what is allowed."""


class UnwritableError(InputError):
    """A store, a copy of it or a file that this machine can't write; another machine may be able to."""


class LockedError(InputError):
    """A file that others keep locked; the message names them."""


class UnsupportedLayerError(InputError):
    """A layer for which an algorithm is not defined; the message names the layer and the algorithm."""


class MemoryLimitError(InputError):
    """A limit, in bytes, that is too small for one example; `needed` bytes are enough."""

    def __init__(self, limit: int, needed: int) -> None:
        super().__init__(
            f"memory_limit={limit} bytes is too small for one example of this model; allowed: at least {needed}"
        )
        self.limit, self.needed = limit, needed

    def __reduce__(self) -> tuple[type, tuple[int, int]]:
        return type(self), (self.limit, self.needed)


class CorruptArtifactError(RuntimeError):
    """Stored or received bytes that are not what was written; they are never used."""


class ProtocolError(RuntimeError):
    """A message of secure aggregation that breaks the protocol; its receiver stops."""


class DivergedClientError(ArithmeticError):
    """A client whose training or statistic is not finite; the message names the client and the quantity."""


class DivergedAttackError(ArithmeticError):
    """A part of an attack whose loss is not finite; the message names the part, the step and the loss."""


class OutputError(RuntimeError):
    """Work that is kept, but could not be written where people look for it, or not go on; the message says where."""


class JobError(RuntimeError):
    """A job's error and traceback as text, since not every error can be sent from one process to another."""

    def __init__(self, reason: str, trace: str) -> None:
        super().__init__(reason, trace)
        self.reason = reason
        self.trace = trace

    def __str__(self) -> str:
        return self.reason


class IncompleteError(RuntimeError):
    """Some jobs failed; every job that did not need them is done.

    Args:
        by_user: whether other settings or other data would mend all of it.
        reported: whether a report of the other jobs was written.
        failed: the jobs that failed.
    """

    def __init__(self, message: str, *, by_user: bool, reported: bool, failed: "Sequence[FailedJob]") -> None:
        super().__init__(message)
        self.by_user = by_user
        self.reported = reported
        self.failed = failed


def anonymous(text: str) -> str:
    """Remove all between `://` and the last @ of a text: user and password of an address."""
    return re.sub("://.*@", "://", text, flags=re.DOTALL)


def printable(text: str) -> str:
    """Replace unprintable characters, on which a terminal or a page would act, by Python's escapes.

    These are control characters, marks of direction and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_lines(text: object) -> str:
    """Escape a message of several lines; see `printable`."""
    return "\n".join(map(printable, str(text).split("\n")))


def shown(value: object, *, longest: int = 200) -> str:
    """Write a value for a message: its `repr`, cut to some characters, without the password of an address."""
    return shortened(anonymous(repr(value)), longest=longest)


def shortened(text: str, *, longest: int = 200) -> str:
    """Put a text on one printable line; a long one is cut, and the line then gives its length."""
    line = printable(" ".join(text[: 2 * longest].splitlines()))
    return line if len(text) <= longest else f"{line[:longest]}... ({len(text):,} characters)"


def in_one_line(error: BaseException) -> str:
    """Return the first line of an error's text, cut, with the error's type unless the message is this project's."""
    line = shortened(str(error).strip().partition("\n")[0])
    return line if isinstance(error, InputError) else f"{type(error).__name__}: {line}"
