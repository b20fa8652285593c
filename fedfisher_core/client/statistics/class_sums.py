"""Sums of the features of each class (FedCGS)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.features import features_of, require_head
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import Structure
from fedfisher_core.communication.wire.tensors import FOREMOST
from fedfisher_core.models.spec import ModelSpec

_BATCH_SIZE = 1000


@dataclass(frozen=True)
class ClassSums(TensorStatistic):
    """Mean of y x^T over examples of features x and one-hot labels y, shape (classes, features).

    Row c times the client's number of examples is the sum of the features of class c; 0 without examples of c.
    """

    name: ClassVar[str] = "class_sums"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = FOREMOST

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Add up class by class, in double precision."""
        features, labels = features_of(local), local.examples.labels
        sums = torch.zeros(local.classes, features.shape[1], dtype=torch.float64, device=features.device)
        for rows, classes in zip(features.split(_BATCH_SIZE), labels.split(_BATCH_SIZE), strict=True):
            sums.index_add_(0, classes, rows.double())
        return cls({"sums": (sums / len(labels)).float()})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the one matrix."""
        return {"sums": Size([spec.classes, require_head(spec).in_features])}
