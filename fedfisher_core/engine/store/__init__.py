"""The artifact store: results of jobs, found by a digest of everything that can change them."""

from fedfisher_core.engine.store.caching import path_of
from fedfisher_core.engine.store.folder_store import STAGES, Store
from fedfisher_core.engine.store.manifest import libraries
from fedfisher_core.engine.store.opening import open_store
from fedfisher_core.engine.store.reading import (
    folder_of,
    map_tensors,
    names_of,
    read_bytes,
    read_document,
    read_tensors,
    read_timings,
    understood,
)
from fedfisher_core.engine.store.recipe import Artifact, Content, Recipe
from fedfisher_core.engine.store.writing import Mark

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
    "read_tensors",
    "read_timings",
    "understood",
]
