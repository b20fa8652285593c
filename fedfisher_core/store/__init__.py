"""The artifact store: results of steps, found by a digest of everything that can change them."""

from fedfisher_core.store.lease import Lease
from fedfisher_core.store.manifest import libraries
from fedfisher_core.store.reading import read_document, read_tensors, read_timings
from fedfisher_core.store.step import Artifact, Content, Step
from fedfisher_core.store.store import STAGES, Store, open_store

__all__ = [
    "STAGES",
    "Artifact",
    "Content",
    "Lease",
    "Step",
    "Store",
    "libraries",
    "open_store",
    "read_document",
    "read_tensors",
    "read_timings",
]
