"""Decoding a data set once."""

from dataclasses import asdict
from functools import lru_cache
from threading import Lock

from torch import Tensor

from fedfisher_core.data.sources import Dataset, find_source, read_dataset
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Split
from fedfisher_core.steps.context import Context
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors

_loading = Lock()


def decode_data(context: Context, name: str) -> Artifact:
    """Decode the examples of a data set.

    Args:
        context: the benchmark.
        name: the data set.

    Returns:
        Its training and test examples as tensors.

    Raises:
        InputError: the data can't be found or read.
    """
    source = find_source(name)
    column = context.settings.partition.column
    step = Step(
        kind="data",
        version=3,
        settings={"spec": asdict(source.spec), "column": column, "source": source.identity},
    )
    found = context.store.find(step)
    if found is not None:
        return found
    dataset = read_dataset(source, group_column=column)
    content = Content(
        tensors={"train.safetensors": _tensors(dataset.train), "test.safetensors": _tensors(dataset.test)},
        # With what normalises the examples, a change of it reaches every digest that rests on them.
        documents={
            "info.json": {
                "name": source.spec.name,
                "class_names": dataset.class_names,
                "mean": source.spec.mean,
                "std": source.spec.std,
            }
        },
    )
    return context.store.write(step, content)


def load_data(artifact: Artifact) -> Dataset:
    """Read a decoded data set; the last two stay in memory for all tasks.

    Args:
        artifact: made by `decode_data`.

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
    )


def _tensors(split: Split) -> dict[str, Tensor]:
    tensors = {"inputs": split.inputs, "labels": split.labels}
    return tensors if split.groups is None else tensors | {"groups": split.groups}
