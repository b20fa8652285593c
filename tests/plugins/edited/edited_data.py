"""A data set of another package."""

from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.layouts import Images

datasets.add("tiny", DatasetSpec("tiny", None, 3, Images(1, 6, 6), (0.4,), (0.3,)))
