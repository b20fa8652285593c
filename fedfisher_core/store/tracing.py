"""What lies in a folder of artifacts, and what was made from what."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fedfisher_core.errors import CorruptArtifactError
from fedfisher_core.store.manifest import MANIFEST, Manifest, read_manifest

log = logging.getLogger("fedfisher")

_MOST_CHARACTERS = 500
_MEASURED = "aggregate"
"""What the input is called of which something is measured."""


def manifests_in(root: Path) -> dict[Path, Manifest]:
    """Read the manifests of all artifacts; what has no readable manifest is none.

    Args:
        root: has the layout of a store.

    Returns:
        Manifests by the artifact's folder.
    """
    found = {}
    for kind in folders_in(root):
        for path in folders_in(kind):
            try:
                if os.path.lexists(path / MANIFEST):
                    found[path] = read_manifest(path)
            except CorruptArtifactError as error:
                # What another prune has removed meanwhile is not worth a word.
                if os.path.lexists(path / MANIFEST):
                    warn(f"{error}; it is passed over")
    return found


def reached(manifests: Mapping[Path, Manifest], keys: Sequence[str]) -> set[Path]:
    """Follow artifacts to everything that they were made from, and to what was measured of any.

    Args:
        manifests: of all artifacts, by folder.
        keys: of some of them.

    Returns:
        Folders of these and of all their inputs, direct and indirect, and of what was made from an `aggregate` among
        them. Artifacts of equal content can't be told apart as inputs: all of them count.
    """
    by_digest: dict[str, list[Path]] = {}
    for path, manifest in manifests.items():
        by_digest.setdefault(manifest.artifact(path).digest, []).append(path)
    found: set[Path] = set()
    wanted = set(keys)
    todo = [path for path in manifests if path.name in wanted]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += [one for digest in manifests[path].inputs.values() for one in by_digest.get(digest, [])]
    digests = {manifests[path].artifact(path).digest for path in found}
    return found | {path for path, manifest in manifests.items() if manifest.inputs.get(_MEASURED) in digests}


def folders_in(folder: Path) -> list[Path]:
    """List the visible folders in one, without those that links point to.

    Args:
        folder: any; one that is not there has none.

    Returns:
        Their paths, sorted.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(
                folder / entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )
    except FileNotFoundError:
        return []
    except OSError as error:
        warn(f"{folder} can't be read: {error.strerror}; it is passed over")
        return []


@cache
def warn(message: str) -> None:
    """Warn once a process, however often an artifact is looked for.

    Args:
        message: of which what can be printed is shown, and no more than a few lines.
    """
    printable = "".join(character if character.isprintable() else "?" for character in message)
    log.warning("%s", printable[:_MOST_CHARACTERS])
