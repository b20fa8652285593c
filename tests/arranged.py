"""Small data sets whose examples are no square images, and networks for them, as another package would add them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images, Tokens, Vectors
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec, model, models
from tests import tiny

CLASSES = 3
NUMBERS = Vectors(6)
SEQUENCES = Tokens(5, 12)
WIDE = Images(1, 6, 9)
COLUMNS = ("age", "height", "weights")

TABLE = DatasetSpec(
    "table", None, CLASSES, NUMBERS, mean=(1.0,) * 6, std=(1.0, 2.0, 1.0, 1.0, 1.0, 1.0), feature_columns=COLUMNS
)
TEXTS = DatasetSpec("texts", None, CLASSES, SEQUENCES)
BANNERS = DatasetSpec("banners", None, CLASSES, WIDE, mean=(0.4,), std=(0.3,))
for _spec in (TABLE, TEXTS, BANNERS):
    datasets.add(_spec.name, _spec)


def _tokens(spec: ModelSpec) -> Tokens:
    if not isinstance(spec.inputs, Tokens):
        raise InputError(f"model {spec.name!r} takes tokens; the data has {spec.inputs}")
    return spec.inputs


@model("bag")
class Bag(nn.Module):
    """The mean of the tokens' embeddings and a linear layer; it draws all of its weights itself."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_tokens(spec).vocabulary, 4)
        self.head = nn.Linear(4, spec.classes, bias=spec.bias)

    def initialise(self, generator: torch.Generator) -> None:
        for parameter in self.parameters():
            parameter.normal_(generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.embedding(inputs).mean(1))


@model("small_gru")
def small_gru(spec: ModelSpec) -> nn.Module:
    """A GRU that little data suffices for."""
    return models.get("gru")(replace(spec, widths=(6, 8)))


@model("small_transformer")
def small_transformer(spec: ModelSpec) -> nn.Module:
    """A transformer that little data suffices for."""
    return models.get("transformer")(replace(spec, widths=(8, 12)))


@model("places")
class Places(nn.Module):
    """A linear layer that sees a vector as a sequence of two places."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.each = nn.Linear(spec.inputs.size // 2, 5, bias=spec.bias)
        self.head = nn.Linear(5, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(functional.relu(self.each(inputs.unflatten(1, (2, -1)))).sum(1))


@model("one_hot")
class OneHot(nn.Module):
    """A linear layer on the tokens of each place."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.vocabulary = _tokens(spec).vocabulary
        self.head = nn.Linear(_tokens(spec).length * self.vocabulary, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(functional.one_hot(inputs, self.vocabulary).flatten(1).to(self.head.weight.dtype))


def numbers(count: int, *, seed: int) -> tuple[NDArray[np.float64], list[int]]:
    """Draw rows that are large where their label says."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % CLASSES)
    rows = rng.normal(size=(count, NUMBERS.features))
    rows[np.arange(count), labels] += 3
    return rows, labels.tolist()


def sequences(count: int, *, seed: int) -> tuple[NDArray[np.int64], list[int]]:
    """Draw sequences in which the tokens of their label are frequent."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % CLASSES)
    share = SEQUENCES.vocabulary // CLASSES
    own = labels[:, None] * share + rng.integers(share, size=(count, SEQUENCES.length))
    anything = rng.integers(SEQUENCES.vocabulary, size=(count, SEQUENCES.length))
    return np.where(rng.random(own.shape) < 0.7, own, anything), labels.tolist()


def banners(count: int, *, seed: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Draw wide images that are bright in one third."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % CLASSES)
    pixels = rng.integers(0, 120, (count, WIDE.height, WIDE.width))
    for label in range(CLASSES):
        pixels[labels == label, :, 3 * label : 3 * label + 3] += 120
    return pixels.astype(np.uint8), labels.tolist()


def write(root: Path) -> Path:
    """Write all three data sets below a folder."""
    for split, count, seed in (("train", tiny.TRAIN, 1), ("test", tiny.TEST, 2)):
        rows, labels = numbers(count, seed=seed)
        columns = {"age": rows[:, 0], "height": rows[:, 1], "weights": rows[:, 2:].tolist(), "label": labels}
        tiny.write_split(root / "table" / f"{split}.parquet", columns)
        texts, labels = sequences(count, seed=seed)
        tiny.write_split(root / "texts" / f"{split}.parquet", {"tokens": texts.tolist(), "label": labels})
        pixels, labels = banners(count, seed=seed)
        columns = {"image": list(map(tiny.png, pixels)), "label": labels}
        tiny.write_split(root / "banners" / f"{split}.parquet", columns)
    return root
