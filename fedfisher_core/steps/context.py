"""What every step of a run shares."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import Cell, RunSettings, Settings, WorkSettings
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

    def specs(self) -> tuple[ModelSpec, ...]:
        """Describe every network that clients train, one for each data set and model."""
        chosen = self.settings
        return tuple(self._spec(dataset, model) for dataset in chosen.data.dataset for model in chosen.model.name)

    def model(self, cell: Cell) -> ModelSpec:
        """Describe the network that the clients of a cell train.

        Args:
            cell: names the data set and the model.

        Returns:
            Its specification.
        """
        return self._spec(cell.dataset, cell.model)

    def _spec(self, dataset: str, model: str) -> ModelSpec:
        data = datasets.get(dataset)
        return ModelSpec(name=model, inputs=data.inputs, classes=data.classes, bias=self.settings.model.bias)

    @cached_property
    def device(self) -> torch.device:
        """The device that the settings choose.

        Raises:
            InputError: it is not there.
        """
        return chosen_device(self.settings.run)


def chosen_device(run: RunSettings) -> torch.device:
    """Find the device that settings choose.

    Args:
        run: the settings.

    Returns:
        The device.

    Raises:
        InputError: it is not there.
    """
    chosen = run.device
    if chosen == "cuda" and not torch.cuda.is_available():
        raise InputError("run.device='cuda', but torch finds no GPU; allowed here: auto, cpu")
    if chosen == "auto":
        chosen = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(chosen)
