"""What names a result, what it consists of, and a reference to it once it is stored."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Settings, rows and pages are read without torch, which takes seconds.
if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Recipe:
    """Everything that can change a result. It is known before any work, and its digest names the result.

    Args:
        kind: of the result; names its folder.
        version: of the code that makes it, raised by hand.
        settings: what can change the result, as JSON has it.
        inputs: keys of the results that it is made from, by role.
    """

    kind: str
    version: int
    settings: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Digest of the recipe, 24 hexadecimal digits."""
        return digest([self.kind, self.version, self.settings, self.inputs])[:24]


@dataclass(frozen=True)
class Content:
    """What a job makes.

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
        kind: names its folder.
        key: of its recipe.
        digest: of its content, without timings.
        path: its folder; for an artifact in a bucket, the folder of this machine's copies.
        bucket: URL of the bucket that holds it; None where its folder holds all of it.
    """

    kind: str
    key: str
    digest: str
    path: Path
    bucket: str | None = None


def as_json(value: Any) -> bytes:
    """Write a value of plain types and finite numbers as JSON, equal values as equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 of a value's JSON (see `as_json`), 64 hexadecimal digits."""
    return hashlib.sha256(as_json(value)).hexdigest()
