"""How many examples of each class a client holds."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Size

from fedfisher_core.client.statistic import ServerView, TensorStatistic
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.wire.structure import EXACT, Structure

if TYPE_CHECKING:
    from fedfisher_core.client.local import Local


@dataclass(frozen=True)
class LabelCounts(TensorStatistic):
    """Counts by class, shape (classes,)."""

    name: ClassVar[str] = "label_counts"
    server_view: ClassVar[ServerView] = ServerView.SUM
    structure: ClassVar[Structure] = EXACT

    @classmethod
    def compute(cls, local: "Local") -> Self:
        """Count the labels."""
        return cls({"counts": torch.bincount(local.examples.labels, minlength=local.classes).float()})

    @classmethod
    def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
        """Name the one vector of counts."""
        return {"counts": Size([spec.classes])}
