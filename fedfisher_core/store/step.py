"""What names a result, what it consists of, and a reference to it once it is stored."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Step:
    """A computation whose result can be stored.

    A setting that is added later is left out where it says what was so before, so that what is stored is found again.

    Args:
        kind: what it makes, the folder's name.
        code: digest of the source that makes it.
        settings: what can change the result, JSON.
        inputs: digests of the artifacts that it reads, by role.
    """

    kind: str
    code: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Digest of the step, 24 hexadecimal digits."""
        return digest([self.kind, self.code, self.settings, self.inputs])[:24]


@dataclass(frozen=True)
class Content:
    """What a step makes.

    Args:
        tensors: safetensors files by name, each with named tensors.
        documents: JSON files by name.
        files: other files by name.
        timings: seconds and bytes that were measured; not part of the digest.
    """

    tensors: Mapping[str, "Mapping[str, Tensor]"] = field(default_factory=dict)
    documents: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """A reference to a stored result.

    Args:
        kind: what it is.
        key: digest of the step that made it.
        digest: digest of its content, without timings.
        path: its folder; of an artifact in a bucket, where this machine keeps what it has read of it.
        shed: whether only its documents are there; what needs its tensors has to have it made again.
        bucket: URL of the bucket that it lies in; None where its folder is all of it.
        made: what it holds, while the task that made it goes on with it; None where it has to be read.
    """

    kind: str
    key: str
    digest: str
    path: Path
    shed: bool = False
    bucket: str | None = None
    made: Content | None = field(default=None, compare=False, repr=False)


def as_json(value: Any) -> bytes:
    """Write a value as JSON, equal values as equal bytes.

    Args:
        value: of plain types; all numbers are finite.

    Returns:
        The text.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 of a value's JSON, 64 hexadecimal digits.

    Args:
        value: as for `as_json`.
    """
    return hashlib.sha256(as_json(value)).hexdigest()
