"""Data sets of a few small images, in files."""

from pathlib import Path
from typing import Any

import numpy as np

from fedfisher_core.data import specs
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Dataset
from tests import tiny

COLOURED = DatasetSpec(
    "coloured", "nobody/coloured", 3, Images(3, 6, 6), (0.5,) * 3, (0.5,) * 3, label_columns=("fine", "label")
)
specs.datasets.add(COLOURED.name, COLOURED)


def grey(value: int, *, size: tuple[int, int] = (6, 6)) -> bytes:
    return tiny.png(np.full(size, value, dtype=np.uint8))


def write(root: Path, name: str = "tiny", *, class_names: list[str] | None = None, **columns: list[Any]) -> None:
    """Write both splits; columns that are not given hold two plain images with their labels."""
    content = {"image": [grey(10), grey(20)], "label": [0, 2]} | columns
    for split in ("train", "test"):
        tiny.write_split(root / name / f"{split}.parquet", content, class_names=class_names)


def read(name: str = "tiny", **options: Any) -> Dataset:
    return read_dataset(find_source(name), **options)
