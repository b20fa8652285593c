"""The errors that a user can cause, or must be told of by name."""

import re
from collections.abc import Mapping


class InputError(ValueError):
    """A setting, a file or a combination that can't be used; the message names it and what is allowed."""


class UnwritableError(InputError):
    """A store, or a copy of it, that this machine can't write; another machine may."""


class UnsupportedLayerError(InputError):
    """A layer that an algorithm is not defined for; the message names the layer and the algorithm."""


class MemoryLimitError(InputError):
    """A limit that is too small for one example.

    Args:
        limit: bytes that are allowed.
        needed: bytes that are enough.
    """

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
    """A message of secure aggregation that is not what the protocol asks for; who receives it stops."""


class DivergedClientError(ArithmeticError):
    """A client whose training or statistic is not finite; the message names the client and the quantity."""


class SomeDivergedError(ArithmeticError):
    """Some of the clients that were computed together have diverged; the results of the others are kept.

    Args:
        diverged: what each says of itself, by name of its job.
    """

    def __init__(self, diverged: Mapping[str, str]) -> None:
        super().__init__(diverged)
        self.diverged = diverged

    def __str__(self) -> str:
        return "; ".join(self.diverged.values())


class DivergedAttackError(ArithmeticError):
    """A part of an attack whose loss is not finite; the message names the part, the step and the loss."""


class OutputError(RuntimeError):
    """Results that are kept, but could not be written to a place where people look; the message names the place."""


class JobError(RuntimeError):
    """What a job raised, as text: not every error can be sent from one process to another.

    Args:
        reason: the error.
        trace: where it was raised.
    """

    def __init__(self, reason: str, trace: str) -> None:
        super().__init__(reason, trace)
        self.reason = reason
        self.trace = trace

    def __str__(self) -> str:
        return self.reason


class IncompleteError(RuntimeError):
    """Some jobs failed; what did not need them is done.

    Args:
        message: how many, and where more is said.
        by_user: whether other settings or other data would mend all of it.
        reported: whether there is a report of the rest.
    """

    def __init__(self, message: str, *, by_user: bool, reported: bool) -> None:
        super().__init__(message)
        self.by_user = by_user
        self.reported = reported


def anonymous(text: str) -> str:
    """Leave user and password out of an address, or of a line that may hold one.

    Args:
        text: an address from the environment, or an error's words.

    Returns:
        The text; where it has an @ behind `://`, without all between them.
    """
    return re.sub("://.*@", "://", text, flags=re.DOTALL)


def shown(value: object, *, longest: int = 200) -> str:
    """Write a value for a message, which must be readable whatever the value is.

    Args:
        value: of any size.
        longest: characters of it to show.

    Returns:
        Its `repr`, cut, without the password of an address.
    """
    return shortened(anonymous(repr(value)), longest=longest)


def shortened(text: str, *, longest: int = 200) -> str:
    """Cut a long text.

    Args:
        text: of any length.
        longest: characters of it to keep.

    Returns:
        The text on one line; where it is cut, it says how long it was.
    """
    line = " ".join(text[: 2 * longest].splitlines())
    return line if len(text) <= longest else f"{line[:longest]}... ({len(text):,} characters)"
