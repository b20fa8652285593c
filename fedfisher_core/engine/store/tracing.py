"""What a folder of artifacts holds, and what each artifact was made from."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fedfisher_core.engine.errors import CorruptArtifactError
from fedfisher_core.engine.files import parse_json, read_regular
from fedfisher_core.engine.store.manifest import MANIFEST, MOST_MANIFEST_BYTES, Manifest, read_manifest

log = logging.getLogger("fedfisher")

_MOST_CHARACTERS = 500
_MEASURED = "aggregate"
"""The role of the input of a measurement."""


def manifests_in(root: Path) -> dict[Path, Manifest]:
    """Read the manifests of a store's artifacts by folder. A folder without a readable manifest is left out."""
    found = {}
    for kind in folders_in(root):
        for path in folders_in(kind):
            try:
                if os.path.lexists(path / MANIFEST) and not is_of_old_layout(path):
                    found[path] = read_manifest(path)
            except CorruptArtifactError as error:
                # Another process may have deleted the artifact meanwhile, which needs no warning.
                if os.path.lexists(path / MANIFEST):
                    warn(f"{error}; it is passed over")
    return found


def is_of_old_layout(path: Path) -> bool:
    """Say whether the artifact in a folder is one that earlier versions of this project named by their code."""
    try:
        fields = parse_json(read_regular(path / MANIFEST, limit=MOST_MANIFEST_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(fields, dict) and "code" in fields and "version" not in fields


def reached(manifests: Mapping[Path, Manifest], keys: Sequence[str]) -> set[Path]:
    """Return the folders of some artifacts, of their direct and indirect inputs, and of what was measured of any.

    Args:
        manifests: of all artifacts, by folder.
        keys: of those to begin with.
    """
    by_key = {path.name: path for path in manifests}
    found: set[Path] = set()
    todo = [by_key[key] for key in keys if key in by_key]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += [by_key[key] for key in manifests[path].inputs.values() if key in by_key]
    names = {path.name for path in found}
    return found | {path for path, manifest in manifests.items() if manifest.inputs.get(_MEASURED) in names}


def folders_in(folder: Path) -> list[Path]:
    """List the visible folders in a folder, sorted, without links. A missing folder has none."""
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
    """Warn once in each process, with unprintable characters replaced and a long message cut."""
    printable = "".join(character if character.isprintable() else "?" for character in message)
    log.warning("%s", printable[:_MOST_CHARACTERS])
