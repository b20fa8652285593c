"""The artifact store: results of steps, found by a digest of everything that can change them."""

from fedfisher_core.store.caching import path_of
from fedfisher_core.store.lease import Lease
from fedfisher_core.store.manifest import libraries
from fedfisher_core.store.marks import Mark
from fedfisher_core.store.opening import open_store
from fedfisher_core.store.reading import (
    folder_of,
    map_tensors,
    names_of,
    read_bytes,
    read_document,
    read_tensors,
    read_timings,
)
from fedfisher_core.store.step import Artifact, Content, Step
from fedfisher_core.store.store import STAGES, Store

__all__ = [
    "STAGES",
    "Artifact",
    "Content",
    "Lease",
    "Mark",
    "Step",
    "Store",
    "folder_of",
    "libraries",
    "map_tensors",
    "names_of",
    "open_store",
    "path_of",
    "read_bytes",
    "read_document",
    "read_tensors",
    "read_timings",
]
