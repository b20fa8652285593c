"""The weights that clients start from."""

from dataclasses import dataclass

import torch

from fedfisher_core.federation.place import POOLED, Place, branch_of, client_name
from fedfisher_core.jobs import NOTHING, Job, NoInputs
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_tensors

_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class DrawStart(Job[NoInputs[Artifact]]):
    """Draw initial weights.

    Args:
        place: the federation.
        client: whose they are, or POOLED for those of the server, which all clients share unless the settings give
            each its own.
        needs: nothing.
    """

    place: Place
    client: int = POOLED
    needs: NoInputs[str] = NOTHING

    @property
    def name(self) -> str:
        """See `Job.name`."""
        whose = "" if self.client == POOLED else f" of {client_name(self.client)}"
        return f"initial weights{whose}: {self.place.label}"

    def step(self, inputs: NoInputs[Artifact]) -> Step:
        """See `Job.step`; all federations of one network and seed share it."""
        spec = self.place.spec
        return Step(
            kind="starts",
            code=source_digest(type(self), models.get(self.place.cell.model)),
            settings={
                "model": {"name": spec.name, "inputs": str(spec.inputs), "classes": spec.classes, "bias": spec.bias},
                "seed": self.place.cell.seed,
                "branch": branch_of(self.client),
            },
        )

    def compute(self, inputs: NoInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        generator = torch_generator(self.place.cell.seed, Stream.INITIALISATION, branch_of(self.client))
        return Content(tensors={_WEIGHTS: self.place.spec.initialise(generator)})


def start_of(place: Place, client: int) -> DrawStart:
    """Find the job that draws the weights that a client starts from.

    Args:
        place: the federation; its settings say whether each client has weights of its own.
        client: its number.

    Returns:
        The job.
    """
    return DrawStart(place, client if place.settings.model.initialisation == "different" else POOLED)


def load_start(artifact: Artifact, device: torch.device) -> Parameters:
    """Read initial weights.

    Args:
        artifact: made by `DrawStart`.
        device: where they go.

    Returns:
        Named parameters.
    """
    return {name: tensor.to(device) for name, tensor in read_tensors(artifact, _WEIGHTS).items()}
