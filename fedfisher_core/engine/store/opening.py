"""Opening the store that a run names."""

from pathlib import Path

from fedfisher_core.engine.store.bucket_store import BucketStore
from fedfisher_core.engine.store.folder_store import STAGES, Store
from fedfisher_core.engine.store.tracing import folders_in
from fedfisher_core.settings import CacheSettings

_GIB = 2**30
_CACHE = CacheSettings()


def open_store(place: Path | str, cache: CacheSettings = _CACHE) -> Store:
    """Open the store that `run.store` names, with the outputs of DVC's stages in the working directory to read.

    Args:
        place: a folder, or the URL of a bucket.
        cache: for copies of what is read from a bucket.
    """
    pulled = folders_in(STAGES)
    if isinstance(place, Path):
        return Store(place, pulled)
    return BucketStore(place, cache.folder, most_bytes=int(cache.gib * _GIB), others=pulled)
