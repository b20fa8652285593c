"""Decoded data sets and features of images, as jobs read them."""

from dataclasses import replace
from functools import lru_cache
from threading import Lock

from fedfisher_core.data.layouts import Texts
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.engine.store import Artifact, map_tensors, read_document, understood

INFO = "info.json"
FEATURES = "features"
"""Key of the number of features that replace an example; absent where nothing replaces examples."""
TEXTS = "texts"
"""Key of the layout of texts; absent for other data."""

_loading = Lock()


def load_data(artifact: Artifact) -> Dataset:
    """Read a data set that `DecodeData` or `ExtractFeatures` made; its tensors must not be changed.

    The last two stay mapped into memory for all jobs, and processes share that memory.
    """
    with _loading:
        return _load(artifact)


@lru_cache(maxsize=2)
@understood
def _load(artifact: Artifact) -> Dataset:
    info = read_document(artifact, INFO)
    spec = datasets.get(info["name"])
    if TEXTS in info:
        spec = replace(spec, inputs=Texts(**info[TEXTS]))
    return Dataset(
        spec=spec.of_features(info[FEATURES]) if FEATURES in info else spec,
        train=Split(**map_tensors(artifact, "train.safetensors")),
        test=Split(**map_tensors(artifact, "test.safetensors")),
        class_names=tuple(info["class_names"]),
        group_names=tuple(info.get("group_names", ())),
        coarse=tuple(info.get("coarse", ())),
        notes=tuple(info.get("notes", ())),
    )
