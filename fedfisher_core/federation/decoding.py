"""Decoding data sets, and extracting features of their images."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedfisher_core.data.labels import unseen_classes
from fedfisher_core.data.layouts import Texts
from fedfisher_core.data.pictures import ImageSizes
from fedfisher_core.data.sampling import Sample
from fedfisher_core.data.sources import Source, find_source, read_dataset
from fedfisher_core.data.texts import tokenised
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job, NoInputs
from fedfisher_core.engine.store import Artifact, Content, read_document
from fedfisher_core.federation.data import FEATURES, INFO, TEXTS, load_data
from fedfisher_core.federation.federation import DataInputs
from fedfisher_core.models.trunks.trunk import Pretrained, TextTrunk, Trunk, load_trunk, prepare, trunks
from fedfisher_core.settings import TextSettings

BATCH_SIZE = 32
"""Examples in a trunk's batch."""


@dataclass(frozen=True)
class DecodeData(Job[NoInputs]):
    """Decode the examples of a data set that are used.

    Args:
        column: names the client of an example; None where the partition does not ask for it.
        sizes: whether images may differ in size.
    """

    kind: ClassVar[str] = "data"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "decode"
    reads_sources: ClassVar[bool] = True

    dataset: str
    column: str | None
    sample: Sample
    sizes: ImageSizes = "same"
    text: TextSettings = field(default_factory=TextSettings)

    @property
    def _source(self) -> Source:
        found = find_source(self.dataset)
        return replace(found, spec=tokenised(found.spec, tokenizer=self.text.tokenizer, length=self.text.length))

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`.

        The same files give the same key in any folder. A file that `fedfisher data import` wrote has its path in it.
        """
        source = self._source
        spec = asdict(source.spec)
        # The digest of a tokenizer says which one it is, wherever its file lies, and so which words it has.
        for known in ("tokenizer", "words"):
            spec["inputs"].pop(known, None)
        return {
            "spec": spec,
            **({"parts": [asdict(part.spec) for part in source.parts]} if source.parts else {}),
            "column": self.column,
            "source": source.identity,
            **self.sample.described(),
            **({} if self.sizes == "same" else {"sizes": self.sizes}),
            # Else, data whose texts were cut before would be found.
            **({} if self.text.longer == "cut" else {"longer": self.text.longer}),
        }

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the data can't be found or read, or has too few examples.
        """
        source = self._source
        spec = source.spec
        dataset = read_dataset(
            source, group_column=self.column, sizes=self.sizes, longer=self.text.longer, sample=self.sample
        )
        unseen = unseen_classes(dataset.class_names, dataset.train.labels.numpy(), dataset.test.labels.numpy())
        notes = [*dataset.notes, *([unseen] if unseen else [])]
        # Constants that normalise the examples belong here, so that a change reaches every digest built on them.
        layout = {name: value for name, value in asdict(spec.inputs).items() if name != "words"}
        info: dict[str, Any] = {
            "name": spec.name,
            "class_names": dataset.class_names,
            "mean": spec.mean,
            "std": spec.std,
            **({} if spec.impute is None else {"impute": spec.impute}),
            **({TEXTS: layout} if isinstance(spec.inputs, Texts) else {}),
            **({"group_names": dataset.group_names} if dataset.group_names else {}),
            **({"coarse": dataset.coarse} if dataset.coarse else {}),
            **({"notes": notes} if notes else {}),
        }
        return Content(
            tensors={
                f"{part}.safetensors": {name: tensor for name, tensor in vars(split).items() if tensor is not None}
                for part, split in (("train", dataset.train), ("test", dataset.test))
            },
            documents={INFO: info},
        )


@dataclass(frozen=True)
class ExtractFeatures(Job[DataInputs[Artifact]]):
    """Replace each example by a trunk's features, without augmentation.

    Args:
        image_size: height and width, in pixels, of the images that the trunk gets; None for texts.
    """

    kind: ClassVar[str] = "features"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "extract"

    trunk: str
    image_size: int | None

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; all federations with the same trunk and images share it."""
        trunk = trunks.get(self.trunk)
        return {
            "trunk": trunk.described,
            "code": code_of(trunk.build),
            **({} if self.image_size is None else {"size": self.image_size}),
            **self.numerics.described(),
        }

    def compute(self, inputs: DataInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the trunk's weights can't be read, or its features are not finite.
        """
        trunk, dataset = trunks.get(self.trunk), load_data(inputs.data)
        device = torch.device(self.numerics.device)
        network = load_trunk(trunk).to(device)
        made = {
            f"{part}.safetensors": {
                **{name: tensor for name, tensor in vars(split).items() if tensor is not None},
                "inputs": features_of(network, trunk, split.inputs, image_size=self.image_size, device=device),
            }
            for part, split in (("train", dataset.train), ("test", dataset.test))
        }
        info: dict[str, Any] = read_document(inputs.data, INFO)
        return Content(tensors=made, documents={INFO: info | {FEATURES: trunk.features}})


def features_of(
    network: nn.Module, trunk: Pretrained, examples: Tensor, *, image_size: int | None, device: torch.device
) -> Tensor:
    """Compute the features of images or texts, a batch at a time.

    Args:
        network: the trunk's, on `device`.
        examples: images: uint8, shape (images, channels, height, width); or tokens: int64, shape (texts, length).
        image_size: height and width, in pixels, that images are resized to; None for texts.

    Returns:
        Float32 on the CPU, shape (examples, features).

    Raises:
        InputError: a feature is not finite.
    """
    features = torch.empty(len(examples), trunk.features)
    with torch.inference_mode():
        for start in range(0, len(examples), BATCH_SIZE):
            batch = _prepared(trunk, examples[start : start + BATCH_SIZE].to(device), image_size)
            features[start : start + len(batch)] = network(batch).cpu()
    if not is_finite(features):
        raise InputError(f"trunk {trunk.name!r} makes features that are not finite")
    return features


def _prepared(trunk: Pretrained, batch: Tensor, image_size: int | None) -> Tensor:
    match trunk:
        case Trunk():
            return prepare(trunk, batch, image_size or trunk.size)
        case TextTrunk():
            # Most texts are short, and what is padding for all of them takes time alone.
            return batch[:, : int((batch != trunk.padding).any(0).sum())]
    raise InputError(f"trunk {trunk.name!r} is a {type(trunk).__name__}; allowed: Trunk or TextTrunk")
