"""Remove artifacts that nothing rests on."""

from pathlib import Path

from fedfisher_core.reporting.rows import read_artifact_keys
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.store import open_store

COMMITTED = Path("reports")
"""Folder of the reports that someone chose to commit."""


def prune(settings: ExperimentSettings, *, dry_run: bool) -> list[str]:
    """Remove artifacts that no results.json was made from, neither of own results nor of committed reports.

    Args:
        settings: name the store and the reports folder.
        dry_run: only say what would be removed.

    Returns:
        Lines to print.
    """
    store = open_store(settings.run.store)
    keys = [
        key
        for folder in dict.fromkeys((settings.run.reports, COMMITTED))
        for path in folder.glob("*/results.json")
        for key in read_artifact_keys(path)
    ]
    keep = store.reachable(keys)
    removed = [path for path in store.folders() if path not in keep]
    size = sum(file.stat().st_size for path in removed for file in path.iterdir())
    if not dry_run:
        store.remove(removed)
    verb = "would remove" if dry_run else "removed"
    return [*map(str, removed), f"{verb} {len(removed)} artifacts, {size / 2**20:.0f} MiB; {len(keep)} stay"]
