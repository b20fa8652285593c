"""Images of two digits side by side, each at half its width, whose class is the number that they write: up to 100.

The task is as real as that of the embedded digits, of which it is made, where random labels would make networks that
are sure of nothing.
"""

import io
from pathlib import Path

import datasets as hub
import torch
from PIL import Image

from fedfisher_core.data.layouts import Images
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.data.tensors import Examples, Split, select

CLASSES = (10, 43, 100)
TEST = 2000


def spec_of(classes: int) -> DatasetSpec:
    """Describe the pairs of which there are so many."""
    return DatasetSpec(f"digit_pairs_{classes}", None, classes, Images(1, 28, 28), mean=(0.1307,), std=(0.3081,))


def pairs(digits: Split, classes: int, count: int, *, seed: int) -> Split:
    """Draw images of the numbers below `classes`, equally often.

    Args:
        digits: grey images of 28x28 pixels of each digit.
        classes: at most 100.
        count: images.
        seed: draws which digits make them.

    Returns:
        Images of 28x28 pixels, and the numbers that they show.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    halves = []
    for wanted in (labels // 10, labels % 10):
        chosen = torch.empty(count, dtype=torch.int64)
        for digit in range(10):
            places, known = (wanted == digit).nonzero().flatten(), (digits.labels == digit).nonzero().flatten()
            chosen[places] = known[torch.randint(len(known), (len(places),), generator=generator)]
        halves.append(digits.inputs[chosen].float().unflatten(3, (-1, 2)).mean(4))
    return Split(inputs=torch.cat(halves, dim=3).round().to(digits.inputs.dtype), labels=labels)


def training_pairs(classes: int, count: int) -> Examples:
    """Draw normalised training images."""
    return select(pairs(read_dataset(find_source("mnist5k")).train, classes, count, seed=0), spec_of(classes))


def write_pairs(folder: Path, classes: int, count: int) -> str:
    """Write both splits below a folder, and register the data set.

    Args:
        folder: that FEDFISHER_DATA_DIR names.
        classes: at most 100.
        count: training images.

    Returns:
        Its name.
    """
    digits, spec = read_dataset(find_source("mnist5k")), spec_of(classes)
    for name, split, size, seed in (("train", digits.train, count, 0), ("test", digits.test, TEST, 1)):
        drawn = pairs(split, classes, size, seed=seed)
        images = [{"bytes": _png(image), "path": None} for image in drawn.inputs[:, 0]]
        table = hub.Dataset.from_dict({"image": images, "label": drawn.labels.tolist()})
        path = folder / spec.name / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table.cast_column("image", hub.Image()).to_parquet(path)
    datasets.add(spec.name, spec)
    return spec.name


def _png(pixels: torch.Tensor) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(stream, format="PNG")
    return stream.getvalue()
