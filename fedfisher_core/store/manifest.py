"""The manifest of an artifact: what made it and what its files hold, sealed by a digest of itself."""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

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

from fedfisher_core.errors import CorruptArtifactError
from fedfisher_core.files import parse_json, read_regular
from fedfisher_core.store.digests import PATTERN, digest_of, has_digest
from fedfisher_core.store.step import Artifact, Content, Step, as_json, digest

MANIFEST = "manifest.json"
MARKER = "shed.json"
"""Lies in the folder of an artifact whose large files were removed."""
MOST_MANIFEST_BYTES = 2**24
MOST_BYTES = 2**34
"""The largest file that an artifact may have."""
_MOST_NAME_BYTES = 255
_SHOWN = 60


def _plain(name: str) -> str:
    """Refuse what is not the name of a file in the artifact's own folder."""
    if name in ("", ".", "..", MANIFEST, MARKER) or not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError("no plain file name")
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise ValueError("a file name that is too long")
    return name


def _finite(number: float) -> float:
    # Integers have no bound, and what adds them up as floats would fail.
    if abs(number) > 1e300 or math.isnan(number):
        raise ValueError("no finite number")
    return number


_FileName = Annotated[StrictStr, AfterValidator(_plain)]
_Digest = Annotated[StrictStr, StringConstraints(pattern=PATTERN)]
_Measure = Annotated[StrictInt | StrictFloat, AfterValidator(_finite)]


@dataclass(frozen=True)
class Manifest:
    """What an artifact says of itself.

    Args:
        kind: what it is.
        key: digest of the step that made it.
        code: digest of the source that made it.
        settings: the step's.
        inputs: digests of the artifacts that it was made from, by role.
        files: the digest of each file, by name.
        timings: seconds and bytes that were measured.
        libraries: versions of what made it.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: StrictStr
    key: StrictStr
    code: StrictStr
    settings: dict[StrictStr, Any]
    inputs: dict[StrictStr, StrictStr]
    files: dict[_FileName, _Digest]
    timings: dict[StrictStr, _Measure]
    libraries: dict[StrictStr, StrictStr]

    def artifact(self, path: Path, *, shed: bool = False, bucket: str | None = None) -> Artifact:
        """Refer to the artifact.

        Args:
            path: its folder.
            shed: whether only its documents are there.
            bucket: URL of the bucket that it lies in, if any.
        """
        digest = content_digest(self.files)
        return Artifact(kind=self.kind, key=self.key, digest=digest, path=path, shed=shed, bucket=bucket)

    def describes(self, files: Mapping[str, bytes]) -> bool:
        """Say whether files are those of the artifact.

        Args:
            files: by name; a manifest among them has no say, as it holds what was measured.
        """
        return files.keys() - {MANIFEST} == self.files.keys() and all(
            has_digest(files[name], digest) for name, digest in self.files.items()
        )


_MANIFEST = TypeAdapter(Manifest)


def content_digest(files: Mapping[str, str]) -> str:
    """Name what an artifact holds, whatever was measured when it was made.

    Args:
        files: the digest of each file, by name.

    Returns:
        24 hexadecimal digits.
    """
    return digest(files)[:24]


def manifest_of(step: Step, files: Mapping[str, str], timings: Mapping[str, float]) -> bytes:
    """Write the manifest of a new artifact.

    Args:
        step: what made it.
        files: the digest of each file, by name.
        timings: what was measured.

    Returns:
        The file's content.
    """
    made = Manifest(
        kind=step.kind,
        key=step.key,
        code=step.code,
        settings=dict(step.settings),
        inputs=dict(step.inputs),
        files=dict(sorted(files.items())),
        timings=dict(timings),
        libraries=libraries(),
    )
    fields = vars(made)
    # A line each: `json` breaks lines in Python alone, which takes several times as long.
    sealed = sorted((fields | {"seal": digest(fields)}).items())
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in sealed)
    return f"{{\n{lines}\n}}\n".encode()


def sealed(step: Step, content: Content) -> tuple[dict[str, bytes], dict[str, str]]:
    """Write all files of a new artifact.

    Args:
        step: what made it.
        content: what it holds.

    Returns:
        The files by name, the manifest among them; and the digest of each of the others.
    """
    from safetensors.torch import save

    files: dict[str, bytes] = {name: save(dict(tensors)) for name, tensors in content.tensors.items()}
    files |= {name: as_json(document) for name, document in content.documents.items()}
    files |= content.files
    digests = {name: digest_of(data) for name, data in files.items()}
    return {**files, MANIFEST: manifest_of(step, digests, content.timings)}, digests


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of an artifact.

    Args:
        path: the artifact's folder.

    Returns:
        The manifest, of the artifact that its folder is named after.

    Raises:
        CorruptArtifactError: it can't be read, is not what was written, or is that of another artifact.
    """
    try:
        fields = parse_json(read_regular(path / MANIFEST, limit=MOST_MANIFEST_BYTES))
        seal = fields.pop("seal")
        found = _MANIFEST.validate_python(fields)
        sealed = digest(fields)
        key = Step(found.kind, found.code, found.settings, found.inputs).key
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
    """Versions of what results depend on."""
    names = ("torch", "torchvision", "numpy", "scipy", "nngeometry", "POT", "opacus", "fedfisher")
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
