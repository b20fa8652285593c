"""A data set of another package."""

from fedfisher.extending import DatasetSpec, Images, datasets

datasets.add("tiny", DatasetSpec("tiny", None, 3, Images(1, 6, 6), (0.4,), (0.3,)))
