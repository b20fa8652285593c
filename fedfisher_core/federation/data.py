"""Decoded data sets, as jobs read them."""

from functools import lru_cache
from threading import Lock

from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.store import Artifact, map_tensors, read_document

INFO = "info.json"
FEATURES = "features"
"""Where the document says how many features stand in the place of an image; it is silent where none do."""

_loading = Lock()


def load_data(artifact: Artifact) -> Dataset:
    """Read a decoded data set; the last two stay mapped into memory for all jobs, and processes share that memory.

    Args:
        artifact: made by `DecodeData` or by `ExtractFeatures`.

    Returns:
        The data set; its tensors must not be changed.
    """
    with _loading:
        return _load(artifact)


@lru_cache(maxsize=2)
def _load(artifact: Artifact) -> Dataset:
    info = read_document(artifact, INFO)
    spec = datasets.get(info["name"])
    return Dataset(
        spec=spec.of_features(info[FEATURES]) if FEATURES in info else spec,
        train=Split(**map_tensors(artifact, "train.safetensors")),
        test=Split(**map_tensors(artifact, "test.safetensors")),
        class_names=tuple(info["class_names"]),
        group_names=tuple(info.get("group_names", ())),
        coarse=tuple(info.get("coarse", ())),
    )
