"""What all aggregations have in common, whatever the server gets to see."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedfisher_core.federation.measuring import require_enough
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.uploads import Sent
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.store import Artifact, Step

if TYPE_CHECKING:
    from fedfisher_core.methods.binding import BoundMethod

R = TypeVar("R")


@dataclass(frozen=True)
class AggregationInputs(Generic[R]):
    """What a server has.

    Args:
        data: the decoded data set, for the validation set and for measuring.
        partition: who holds what.
        start: the initial weights of the server.
        clients: by number, what each has ready for the method.
    """

    data: R
    partition: R
    start: R
    clients: Mapping[int, Sent[R]]


@dataclass(frozen=True)
class Aggregation(Job[AggregationInputs[Artifact]]):
    """Aggregate what clients send, and measure the global model.

    Args:
        place: the federation.
        label: what the settings call the method.
        bound: the method and its settings.
        needs: names of the jobs before.
    """

    place: Place
    label: str
    bound: "BoundMethod"
    needs: AggregationInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"{self.label}: {self.place.label}"

    @property
    def numerics(self) -> Numerics:
        """See `Job.numerics`."""
        return self.place.numerics

    @property
    @abstractmethod
    def code(self) -> str:
        """Digest of the source that makes the global model."""

    @property
    @abstractmethod
    def protocol(self) -> dict[str, Any]:
        """How uploads reach the server, for the key."""

    def without(self, lost: Mapping[str, Exception]) -> None:
        """See `Job.without`."""
        require_enough(self.place, self.needs.clients, lost)

    def step(self, inputs: AggregationInputs[Artifact]) -> Step:
        """See `Job.step`."""
        method, place = self.bound.method, self.place
        return Step(
            kind="aggregates",
            code=self.code,
            settings={
                "method": method.name,
                "method_settings": self.bound.dumped_settings(),
                "model": {"name": place.cell.model, "bias": place.settings.model.bias},
                "seed": place.cell.seed,
                **self.protocol,
                **place.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "partition": inputs.partition.digest,
                "start": inputs.start.digest,
                **{
                    f"client_{client}.{name}": artifact.digest
                    for client, sent in inputs.clients.items()
                    for name, artifact in sent.uploads.items()
                },
            },
        )
