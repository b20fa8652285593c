"""The artifact store: results of jobs, found by a digest of everything that can change them."""

from pathlib import Path

from fedfisher_core.engine.store.bucket import require_library
from fedfisher_core.engine.store.bucket_store import BucketStore
from fedfisher_core.engine.store.caching import path_of
from fedfisher_core.engine.store.folder_store import STAGES, Store
from fedfisher_core.engine.store.manifest import Artifact, Content, Recipe, libraries
from fedfisher_core.engine.store.reading import (
    folder_of,
    folders_in,
    map_tensors,
    names_of,
    read_bytes,
    read_document,
    read_libraries,
    read_tensors,
    read_timings,
    understood,
)
from fedfisher_core.engine.store.writing import Mark
from fedfisher_core.settings import CacheSettings

__all__ = [
    "STAGES",
    "Artifact",
    "Content",
    "Mark",
    "Recipe",
    "Store",
    "folder_of",
    "libraries",
    "map_tensors",
    "names_of",
    "open_store",
    "path_of",
    "read_bytes",
    "read_document",
    "read_libraries",
    "read_tensors",
    "read_timings",
    "understood",
]

_GIB = 2**30
_CACHE = CacheSettings()


def open_store(place: Path | str, cache: CacheSettings = _CACHE) -> Store:
    """Open the store that `run.store` names, with the outputs of DVC's stages in the working directory to read.

    Args:
        place: a folder, or the URL of a bucket.
    """
    pulled = folders_in(STAGES)
    if isinstance(place, Path):
        return Store(place, pulled)
    require_library(place)
    return BucketStore(place, cache.folder, most_bytes=int(cache.gib * _GIB), others=pulled)
