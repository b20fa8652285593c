"""Decoding a data set once."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fedfisher_core.data.pictures import ImageSizes
from fedfisher_core.data.sampling import Sample
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.federation.data import INFO
from fedfisher_core.jobs import Job, NoInputs
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Content, Step


@dataclass(frozen=True)
class DecodeData(Job[NoInputs]):
    """Decode the examples of a data set, or those that are used of it.

    Args:
        dataset: its name.
        column: names the client of an example; None where the partition does not ask for it.
        sample: which examples are used.
        sizes: whether its images may differ in size among themselves.
    """

    reads_sources: ClassVar[bool] = True

    dataset: str
    column: str | None
    sample: Sample
    sizes: ImageSizes = "same"

    def step(self, inputs: NoInputs) -> Step:
        """See `Job.step`; the same files give the same step, wherever they are."""
        source = find_source(self.dataset)
        settings = {
            "spec": asdict(source.spec),
            **({"parts": [asdict(part.spec) for part in source.parts]} if source.parts else {}),
            "column": self.column,
            "source": source.identity,
            **self.sample.described(),
            **({} if self.sizes == "same" else {"sizes": self.sizes}),
        }
        return Step(kind="data", code=source_digest(type(self)), settings=settings)

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the data can't be found or read, or has too few examples.
        """
        source = find_source(self.dataset)
        spec = source.spec
        dataset = self.sample.of(read_dataset(source, group_column=self.column, sizes=self.sizes))
        # With what normalises the examples, a change of it reaches every digest that rests on them.
        info: dict[str, Any] = {
            "name": spec.name,
            "class_names": dataset.class_names,
            "mean": spec.mean,
            "std": spec.std,
            **({} if spec.impute is None else {"impute": spec.impute}),
            **({"group_names": dataset.group_names} if dataset.group_names else {}),
            **({"coarse": dataset.coarse} if dataset.coarse else {}),
        }
        return Content(
            tensors={
                f"{part}.safetensors": {name: tensor for name, tensor in vars(split).items() if tensor is not None}
                for part, split in (("train", dataset.train), ("test", dataset.test))
            },
            documents={INFO: info},
        )
