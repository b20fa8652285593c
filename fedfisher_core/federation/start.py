"""The weights that clients start from."""

from abc import ABC
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from fedfisher_core.federation.place import ClientJob
from fedfisher_core.jobs import NoInputs
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.seeds import Stream
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_tensors

WEIGHTS = "weights.safetensors"
KIND = "starts"

NETWORK = "network_{}.safetensors"
"""Where an aggregation keeps each of its networks; the first is what a further round starts from."""


@dataclass(frozen=True)
class StartJob(ClientJob[NoInputs], ABC):
    """Make initial weights."""

    def described(self) -> dict[str, Any]:
        """Say which network they are of, as JSON has it."""
        spec = self.place.spec
        return {"name": spec.name, "inputs": str(spec.inputs), "classes": spec.classes, "bias": spec.bias}


@dataclass(frozen=True)
class DrawStart(StartJob):
    """Draw initial weights; the pooled client's are the server's, which clients share that have none of their own."""

    def step(self, inputs: NoInputs) -> Step:
        """See `Job.step`; all federations of one network and seed share it."""
        return Step(
            kind=KIND,
            code=source_digest(type(self), models.get(self.place.spec.name)),
            settings={
                "model": self.described(),
                "seed": self.place.cell.seed,
                "branch": self.branch,
            },
        )

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`."""
        return Content(tensors={WEIGHTS: self.place.spec.initialise(self.generator(Stream.INITIALISATION))})


def load_start(artifact: Artifact, device: torch.device) -> Parameters:
    """Read the weights that a round starts from; the last two stay in memory, as all clients of a round ask for them.

    Args:
        artifact: made by `DrawStart` or `ReadStart`, or by the aggregation of the round before.
        device: where they go.

    Returns:
        Named parameters, the caller's own.
    """
    return {name: tensor.to(device, copy=True) for name, tensor in _read(artifact).items()}


@lru_cache(maxsize=2)
def _read(artifact: Artifact) -> Parameters:
    return read_tensors(artifact, WEIGHTS if artifact.kind == KIND else NETWORK.format(0))
