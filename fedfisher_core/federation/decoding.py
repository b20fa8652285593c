"""Decoding a data set once."""

from dataclasses import asdict, dataclass

from torch import Tensor

from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.tensors import Split
from fedfisher_core.jobs import NOTHING, Job, NoInputs
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step


@dataclass(frozen=True)
class DecodeData(Job[NoInputs[Artifact]]):
    """Decode the examples of a data set.

    Args:
        dataset: its name.
        column: names the client of a training example; None where the partition does not ask for it.
        needs: nothing.
    """

    dataset: str
    column: str | None
    needs: NoInputs[str] = NOTHING

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"decode {self.dataset}"

    def step(self, inputs: NoInputs[Artifact]) -> Step:
        """See `Job.step`; the same files give the same step, wherever they are."""
        source = find_source(self.dataset)
        return Step(
            kind="data",
            code=source_digest(type(self)),
            settings={"spec": asdict(source.spec), "column": self.column, "source": source.identity},
        )

    def compute(self, inputs: NoInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the data can't be found or read.
        """
        source = find_source(self.dataset)
        dataset = read_dataset(source, group_column=self.column)
        # With what normalises the examples, a change of it reaches every digest that rests on them.
        info = {
            "name": source.spec.name,
            "class_names": dataset.class_names,
            "mean": source.spec.mean,
            "std": source.spec.std,
        }
        return Content(
            tensors={"train.safetensors": _tensors(dataset.train), "test.safetensors": _tensors(dataset.test)},
            documents={"info.json": info},
        )


def _tensors(split: Split) -> dict[str, Tensor]:
    tensors = {"inputs": split.inputs, "labels": split.labels}
    return tensors if split.groups is None else tensors | {"groups": split.groups}
