"""The manifest of an artifact: what made it and the digests of its files, sealed by a digest of itself."""

import hashlib
import json
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from blake3 import blake3
from pydantic import (
    AfterValidator,
    ConfigDict,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from fedfisher_core.engine.errors import CorruptArtifactError
from fedfisher_core.engine.files import parse_json, read_regular

# Settings, rows and pages are read without torch, which takes seconds.
if TYPE_CHECKING:
    from torch import Tensor


PATTERN = "^blake3-[0-9a-f]{64}$"
_PREFIX = "blake3-"
_blake3: Callable[[], Any] = blake3
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 2**24
MOST_BYTES = 2**34
"""The most bytes that a file of an artifact may have."""
_MOST_NAME_BYTES = 255
_SHOWN = 60
_Digest = Annotated[StrictStr, StringConstraints(pattern=PATTERN)]


@dataclass(frozen=True)
class Recipe:
    """Everything that can change a result. It is known before any work, and its digest names the result.

    Args:
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


def digest_of(content: bytes) -> str:
    """Digest a file's content, in the form of `PATTERN`."""
    return f"{_PREFIX}{blake3(content).hexdigest()}"


def has_digest(content: bytes, digest: str) -> bool:
    """Say whether a file's content has a digest."""
    return digest_of(content) == digest


def file_has_digest(file: FileIO, digest: str) -> bool:
    """Say whether an open file, read from its start, has a digest, without holding a large one in memory."""
    return f"{_PREFIX}{hashlib.file_digest(file, _blake3).hexdigest()}" == digest


def _plain(name: str) -> str:
    """Refuse a text that is not the name of a file in the artifact's own folder."""
    if name in ("", ".", "..", MANIFEST) or not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError("no plain file name")
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise ValueError("a file name that is too long")
    return name


def _finite(number: float) -> float:
    # Integers have no bound, and adding them up as floats would fail.
    if abs(number) > 1e300 or math.isnan(number):
        raise ValueError("no finite number")
    return number


_FileName = Annotated[StrictStr, AfterValidator(_plain)]
_Measure = Annotated[StrictInt | StrictFloat, AfterValidator(_finite)]


@dataclass(frozen=True)
class Manifest:
    """What an artifact says of itself.

    Args:
        inputs: keys of the artifacts that it was made from, by role.
        files: the digest of each file, by name.
        timings: seconds and bytes that were measured.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: StrictStr
    key: StrictStr
    version: StrictInt
    settings: dict[StrictStr, Any]
    inputs: dict[StrictStr, StrictStr]
    files: dict[_FileName, _Digest]
    timings: dict[StrictStr, _Measure]
    libraries: dict[StrictStr, StrictStr]

    def artifact(self, path: Path) -> Artifact:
        """Refer to the artifact in a folder."""
        return Artifact(kind=self.kind, key=self.key, digest=content_digest(self.files), path=path)


_MANIFEST = TypeAdapter(Manifest)


def content_digest(files: Mapping[str, str]) -> str:
    """Digest an artifact's files, given by their digests, as 24 hexadecimal digits; timings do not count."""
    return digest(files)[:24]


def manifest_of(recipe: Recipe, files: Mapping[str, str], timings: Mapping[str, float]) -> bytes:
    """Write the manifest of a new artifact with files of given digests."""
    made = Manifest(
        kind=recipe.kind,
        key=recipe.key,
        version=recipe.version,
        settings=dict(recipe.settings),
        inputs=dict(recipe.inputs),
        files=dict(sorted(files.items())),
        timings=dict(timings),
        libraries=libraries(),
    )
    fields = vars(made)
    # One line for each field is written here: `json` breaks lines in Python code, which is several times slower.
    sealed = sorted((fields | {"seal": digest(fields)}).items())
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in sealed)
    return f"{{\n{lines}\n}}\n".encode()


def sealed(recipe: Recipe, content: Content) -> tuple[dict[str, bytes], dict[str, str]]:
    """Write all files of a new artifact, and return them with the digests of all but the manifest."""
    from safetensors.torch import save

    files: dict[str, bytes] = {name: save(dict(tensors)) for name, tensors in content.tensors.items()}
    files |= {name: as_json(document) for name, document in content.documents.items()}
    files |= content.files
    digests = {name: digest_of(data) for name, data in files.items()}
    return {**files, MANIFEST: manifest_of(recipe, digests, content.timings)}, digests


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of an artifact, whose folder is named after its key.

    Raises:
        CorruptArtifactError: it can't be read, is not what was written, or is that of another artifact.
    """
    try:
        fields = parse_json(read_regular(path / MANIFEST, limit=MOST_MANIFEST_BYTES, through_links=True))
        seal = fields.pop("seal")
        found = _MANIFEST.validate_python(fields)
        sealed = digest(fields)
        key = Recipe(found.kind, found.version, found.settings, found.inputs).key
    except OSError as error:
        raise CorruptArtifactError(f"artifact {path}: {MANIFEST} can't be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = " ".join(str(part) for part in first["loc"])[:_SHOWN]
        raise CorruptArtifactError(f"artifact {path}: {MANIFEST} has a wrong {place!r}: {first['msg']}") from error
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptArtifactError(f"artifact {path}: {MANIFEST} is not what was written: {error}") from error
    if seal != sealed:
        raise CorruptArtifactError(f"artifact {path}: {MANIFEST} was changed")
    if (found.kind, found.key, key) != (path.parent.name, path.name, path.name):
        raise CorruptArtifactError(f"artifact {path} says it is {f'{found.kind}/{found.key}'[:_SHOWN]!r}")
    return found


@cache
def libraries() -> dict[str, str]:
    """Return the versions of the libraries that results depend on."""
    names = ("torch", "torchvision", "numpy", "scipy", "nngeometry", "POT", "opacus", "fedfisher")
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
