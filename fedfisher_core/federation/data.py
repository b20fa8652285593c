"""Decoded data sets, as jobs read them."""

from functools import lru_cache
from threading import Lock

from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.store import Artifact, read_document, read_tensors

_loading = Lock()


def load_data(artifact: Artifact) -> Dataset:
    """Read a decoded data set; the last two stay in memory for all jobs.

    Args:
        artifact: made by `DecodeData`.

    Returns:
        The data set; its tensors must not be changed.
    """
    with _loading:
        return _load(artifact)


@lru_cache(maxsize=2)
def _load(artifact: Artifact) -> Dataset:
    info = read_document(artifact, "info.json")
    return Dataset(
        spec=datasets.get(info["name"]),
        train=Split(**read_tensors(artifact, "train.safetensors")),
        test=Split(**read_tensors(artifact, "test.safetensors")),
        class_names=tuple(info["class_names"]),
        group_names=tuple(info.get("group_names", ())),
        coarse=tuple(info.get("coarse", ())),
    )
