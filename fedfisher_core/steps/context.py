"""What every step of a run shares."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import RunSettings, Settings, WorkSettings
from fedfisher_core.store import Store

STAGES = Path("stages")


class WorkContext(ABC):
    """Where and how the work of any experiment is carried out."""

    @property
    @abstractmethod
    def run(self) -> WorkSettings:
        """The settings that say so."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that computes."""

    @cached_property
    def store(self) -> Store:
        """The artifact store; outputs of DVC's stages, which `dvc pull` may have brought, are read as well."""
        return Store(self.run.store, others=sorted(STAGES.glob("*/*/")))

    @cached_property
    def workers(self) -> int:
        """Tasks at a time."""
        return self.run.workers or len(os.sched_getaffinity(0))

    @property
    def numerics(self) -> dict[str, str | int]:
        """What decides how sums round, and hence belongs to every key."""
        return {"device": self.device.type, "threads": self.run.torch_threads}


@dataclass(frozen=True)
class Context(WorkContext):
    """A benchmark's settings, and what follows from them.

    Args:
        settings: the benchmark.
    """

    settings: Settings

    @property
    def run(self) -> RunSettings:
        """How the work of the benchmark is carried out."""
        return self.settings.run

    @cached_property
    def dataset(self) -> DatasetSpec:
        """The data set that the settings name."""
        return datasets.get(self.settings.data.dataset)

    @cached_property
    def model(self) -> ModelSpec:
        """The network that clients train."""
        return ModelSpec(
            name=self.settings.model.name,
            channels=self.dataset.channels,
            size=self.dataset.size,
            classes=self.dataset.classes,
            bias=self.settings.model.bias,
        )

    @cached_property
    def device(self) -> torch.device:
        """The device that the settings choose.

        Raises:
            InputError: it is not there.
        """
        chosen = self.settings.run.device
        if chosen == "cuda" and not torch.cuda.is_available():
            raise InputError("run.device='cuda', but torch finds no GPU; allowed here: auto, cpu")
        if chosen == "auto":
            chosen = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(chosen)
