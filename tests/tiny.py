"""A data set and networks that are small enough for brute force, registered as another package would do it."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets as hub
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.local import Local
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.data.tensors import Examples
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.models.spec import ModelSpec, model
from fedfisher_core.settings import FisherSettings
from fedfisher_core.settings.reading import validate

CLASSES = 3
SIZE = 6
TRAIN = 120
TEST = 60
CLASS_NAMES = ["left", "right", "top"]

TINY_DATA = DatasetSpec("tiny", "nobody/tiny", CLASSES, Images(1, SIZE, SIZE), mean=(0.4,), std=(0.3,))
TINY_AUGMENTED = DatasetSpec(
    "tiny_augmented", "nobody/tiny", CLASSES, Images(1, SIZE, SIZE), mean=(0.4,), std=(0.3,), augment=True
)
TINY = ModelSpec(name="tiny", inputs=Images(1, SIZE, SIZE), classes=CLASSES)
TINY_WITH_BIAS = ModelSpec(name="tiny", inputs=Images(1, SIZE, SIZE), classes=CLASSES, bias=True)
ROWS = ModelSpec(name="mlp", inputs=Images(1, SIZE, SIZE), classes=CLASSES, widths=(7, 6, 5))
RANK, ADAPTED_WIDTH = 2, SIZE
ADAPTED = ModelSpec(name="adapted", inputs=Images(1, SIZE, SIZE), classes=CLASSES)
LINEAR = ModelSpec(name="linear", inputs=Images(1, SIZE, SIZE), classes=CLASSES)
LINEAR_WITH_BIAS = ModelSpec(name="linear", inputs=Images(1, SIZE, SIZE), classes=CLASSES, bias=True)

datasets.add(TINY_DATA.name, TINY_DATA)
datasets.add(TINY_AUGMENTED.name, TINY_AUGMENTED)


@model("tiny")
class Tiny(nn.Module):
    """One convolution and two linear layers."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        filters, hidden = spec.widths_or((2, 5))
        self.conv = nn.Conv2d(spec.inputs.channels, filters, kernel_size=3, stride=2, padding=1, bias=spec.bias)
        self.hidden = nn.Linear(
            filters * ((spec.inputs.height + 1) // 2) * ((spec.inputs.width + 1) // 2), hidden, bias=spec.bias
        )
        self.head = nn.Linear(hidden, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(self.conv(inputs))
        return self.head(functional.relu(self.hidden(maps.flatten(1))))


@model("adapted")
class Adapted(nn.Module):
    """Means of columns, to which an adapter adds, and a linear layer."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        (rank,) = spec.widths_or((RANK,))
        self.lora_A = nn.Linear(spec.inputs.width, rank, bias=False)
        self.lora_B = nn.Linear(rank, spec.inputs.width, bias=False)
        self.head = nn.Linear(spec.inputs.width, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        means = inputs.mean((1, 2))
        return self.head(functional.relu(means + self.lora_B(self.lora_A(means))))


@model("normalised")
class Normalised(nn.Module):
    """A network whose batch normalisation has no Fisher block."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(spec.inputs.channels, 2, kernel_size=3)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Linear(2, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(inputs)).mean((2, 3)))


def examples(count: int, *, seed: int = 0, spec: ModelSpec = TINY) -> Examples:
    """Draw inputs whose classes have different means."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, spec.classes, (count,), generator=generator)
    inputs = torch.randn(count, *spec.inputs.shape, generator=generator)
    inputs[torch.arange(count), 0, labels, :] += 1.5
    return Examples(inputs=inputs, labels=labels)


def initial(spec: ModelSpec = TINY, *, seed: int = 0) -> dict[str, Tensor]:
    return spec.initialise(torch.Generator().manual_seed(seed))


def local(network: nn.Module, data: Examples, **settings: Any) -> Local:
    """Take a network for a client's after training; all Fishers share one pass."""
    return Local(
        network=network.eval(),
        initial={name: torch.zeros_like(parameter) for name, parameter in network.named_parameters()},
        examples=data,
        classes=CLASSES,
        batch_size=8,
        settings=FisherSettings(**settings).chosen(CLASSES, private=False, on_gpu=False),
        approximations=frozenset(Approximation) - ({Approximation.DENSE} if "backend" in settings else set()),
        generator=torch.Generator().manual_seed(0),
    )


def images(count: int, *, seed: int) -> tuple[list[NDArray[np.uint8]], list[int]]:
    """Draw noisy grey images that are bright on one side."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % CLASSES)
    pixels = rng.integers(0, 120, (count, SIZE, SIZE))
    half = SIZE // 2
    pixels[labels == 0, :, :half] += 120
    pixels[labels == 1, :, half:] += 120
    pixels[labels == 2, :half, :] += 120
    return [image.astype(np.uint8) for image in pixels], labels.tolist()


def png(pixels: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return stream.getvalue()


def write_split(path: Path, columns: Mapping[str, Sequence[Any]], *, class_names: Sequence[str] | None = None) -> None:
    """Write one Parquet file in the hub's schema; images are given as PNG bytes."""
    columns = dict(columns)
    features: dict[str, Any] = {}
    for name in ("image", "img"):
        if name in columns:
            columns[name] = [{"bytes": data, "path": None} for data in columns[name]]
            features[name] = hub.Image()
    table = hub.Dataset.from_dict(columns)
    for name, feature in features.items():
        table = table.cast_column(name, feature)
    if class_names is not None:
        table = table.cast_column("label", hub.ClassLabel(names=list(class_names)))
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path)


def write_tiny(root: Path, name: str = "tiny") -> Path:
    """Write the whole tiny data set below a folder."""
    for split, count, seed in (("train", TRAIN, 1), ("test", TEST, 2)):
        pixels, labels = images(count, seed=seed)
        columns = {"image": list(map(png, pixels)), "label": labels, "maker": [f"maker {i % 7}" for i in range(count)]}
        write_split(root / name / f"{split}.parquet", columns, class_names=CLASS_NAMES)
    return root


def tiny_settings(folder: Path, **changes: Any) -> BenchmarkSettings:
    """Build the settings of a benchmark on the tiny data set that writes below a folder."""
    content: dict[str, Any] = {
        "name": "tiny",
        "seeds": [0],
        "data": {"dataset": "tiny", "validation_size": 20},
        "partition": {"alpha": [0.5], "clients": [3], "min_size": 5},
        "model": {"name": "tiny"},
        "train": {"epochs": 3, "learning_rate": 0.05, "batch_size": 16},
        "methods": {"fedavg": {}},
        "run": {"device": "cpu", "store": str(folder / "artifacts"), "reports": str(folder / "results")},
        "tracking": {"mlflow": f"sqlite:///{folder}/mlflow.db"},
    }
    for key, value in changes.items():
        content[key] = content.get(key, {}) | value if isinstance(value, dict) and key != "methods" else value
    return validate(BenchmarkSettings, content)
