"""The number of examples of each class that a client holds."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.statistic import ServerView, TensorStatistic
from fedfisher_core.communication.wire.structure import EXACT, Structure
from fedfisher_core.models.spec import ModelSpec


@dataclass(frozen=True)
class LabelCounts(TensorStatistic):
    """Counts by class, shape (classes,)."""

    name: ClassVar[str] = "label_counts"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = EXACT

    @classmethod
    def compute(cls, local: Local) -> Self:
        """Count the labels."""
        return cls({"counts": torch.bincount(local.examples.labels, minlength=local.classes).float()})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the one vector of counts."""
        return {"counts": Size([spec.classes])}
