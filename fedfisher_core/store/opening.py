"""Opening the store that a run names."""

from pathlib import Path

from fedfisher_core.settings import CacheSettings
from fedfisher_core.store.bucket_store import BucketStore
from fedfisher_core.store.store import STAGES, Store
from fedfisher_core.store.tracing import folders_in

_GIB = 2**30
_CACHE = CacheSettings()


def open_store(place: Path | str, cache: CacheSettings = _CACHE) -> Store:
    """Open the store of a run, in the working directory.

    Args:
        place: the setting `run.store`.
        cache: the setting `run.cache`, of what is read from a bucket.

    Returns:
        The store; outputs of DVC's stages, which `dvc pull` may have brought, are read as well.
    """
    pulled = [stage for experiment in folders_in(STAGES) for stage in folders_in(experiment)]
    if isinstance(place, Path):
        return Store(place, pulled)
    return BucketStore(place, cache.folder, most_bytes=int(cache.gib * _GIB), others=pulled)
