"""Deleting artifacts that no results rest on."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import open_store
from fedfisher_core.reporting.rows import RESULTS, read_artifact_keys
from fedfisher_core.settings import ExperimentSettings
from flows.reports import REPORTS
from flows.terminal import command_line


@dataclass(frozen=True)
class Unused:
    """Artifacts that no results.json was made from, and those that are kept: bytes by folder."""

    sizes: Mapping[Path, int]
    kept: Mapping[Path, int]

    @property
    def is_most(self) -> bool:
        """Whether they are more than half of the store, in number or in bytes."""
        return len(self.sizes) > len(self.kept) or sum(self.sizes.values()) > sum(self.kept.values())

    def __str__(self) -> str:
        removed, kept = (sum(own.values()) / 2**20 for own in (self.sizes, self.kept))
        return f"{len(self.sizes)} artifacts, {removed:.0f} MiB; {len(self.kept)} stay, {kept:.0f} MiB"


def find_unused(settings: ExperimentSettings) -> Unused:
    """Find artifacts on which no report rests in the folder that the settings name, in `results` or in `reports`.

    Raises:
        InputError: the store or the reports are missing or can't be read, so it is not known what rests on what.
    """
    place = settings.run.store
    if not isinstance(place, Path):
        raise InputError(
            f"run.store={place!r} is a bucket, where others' results may rest on artifacts, so nothing was deleted; "
            "allowed: a folder"
        )
    store = open_store(place)
    for name, folder in (("store", place), ("reports", settings.run.reports)):
        if not folder.is_dir():
            raise InputError(f"run.{name}={str(folder)!r} is no folder, so nothing was deleted")
    folders = dict.fromkeys((settings.run.reports, *REPORTS))
    results = [path for folder in folders if folder.is_dir() for path in _results_in(folder)]
    if not results:
        raise InputError(
            f"run.reports={str(settings.run.reports)!r} holds no report, on which artifacts could rest, "
            "so nothing was deleted"
        )
    keys = [key for path in results for key in read_artifact_keys(path)]
    if damaged := store.damaged(keys):
        raise InputError(
            f"artifact {damaged[0]} is damaged, and reports rest on it, so it is not known what else they need, and "
            "nothing was deleted; allowed: to run its experiment again, which mends it"
        )
    used = store.reachable(keys)
    sizes = {path: _size(path) for path in store.folders()}
    return Unused(
        sizes={path: size for path, size in sizes.items() if path not in used},
        kept={path: size for path, size in sizes.items() if path in used},
    )


def remove_unused(settings: ExperimentSettings, found: Unused) -> Unused:
    """Delete what `find_unused` has found while no other process uses the store, and return what was deleted.

    Artifacts that a run has used meanwhile are kept.

    Raises:
        LockedError: the store is in use.
    """
    store = open_store(settings.run.store)
    with store.alone(command_line()):
        now = find_unused(settings)
        removed = Unused(
            sizes={path: size for path, size in now.sizes.items() if path in found.sizes},
            kept={**now.kept, **{path: size for path, size in now.sizes.items() if path not in found.sizes}},
        )
        store.remove(removed.sizes)
    return removed


def _results_in(folder: Path) -> list[Path]:
    try:
        # A glob pattern would skip folders that can't be read, and artifacts of their reports would be deleted.
        reports = [path for path in sorted(folder.iterdir()) if path.is_dir()]
        return [path / RESULTS for path in reports if RESULTS in os.listdir(path)]
    except OSError as error:
        raise InputError(f"{error.filename} can't be read: {error.strerror}; so nothing was deleted") from error


def _size(folder: Path) -> int:
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            # A run that goes on may delete it, as it does with results of earlier rounds.
            with suppress(FileNotFoundError):
                size += os.lstat(Path(place, name)).st_size
    return size
