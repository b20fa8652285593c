"""Computing what a client uploads beside its weights."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.federation.inputs import R, StartInputs
from fedfisher_core.federation.partition import describe_view, digest_of_held, examples_of
from fedfisher_core.federation.place import ClientJob, Place
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.jobs import digests_of
from fedfisher_core.models.spec import models
from fedfisher_core.seeds import Stream
from fedfisher_core.settings import FisherSettings
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors

if TYPE_CHECKING:
    from fedfisher_core.client.bound import BoundStatistic


FISHER = "fisher.json"
"""The document of a statistic whose Fisher may rest on directions that were drawn."""


@dataclass(frozen=True)
class StatisticInputs(StartInputs[R]):
    """What a client has after its training.

    Args:
        trained: its weights.
    """

    trained: R


@dataclass(frozen=True)
class ComputeStatistic(ClientJob[StatisticInputs[Artifact]]):
    """Compute one statistic of one client.

    Args:
        bound: what is computed, with its settings.
    """

    bound: "BoundStatistic"

    @property
    def statistic(self) -> type[Statistic]:
        """What is computed."""
        return self.bound.statistic

    def step(self, inputs: StatisticInputs[Artifact]) -> Step:
        """See `Job.step`; a client that holds the same examples in another split is the same."""
        inherited = {name: one for name, one in digests_of(inputs).items() if name != "partition"}
        return Step(
            kind="statistics",
            code=source_digest(type(self), self.statistic, models.get(self.place.spec.name)),
            settings={
                "statistic": self.statistic.name,
                **({"settings": chosen} if (chosen := self.bound.described()) else {}),
                **({} if self.statistic.approximation is None else {"fisher": self.place.fisher.described()}),
                "seed": self.place.cell.seed,
                "client": self.client,
                **describe_view(inputs.partition, self.client),
                **self.private(),
                **self.later,
                **self.numerics.described(),
            },
            inputs={**inherited, "indices": digest_of_held(inputs.partition, self.client)},
        )

    def compute(self, inputs: StatisticInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        (content,) = self.compute_together([self], [inputs])
        return content

    @classmethod
    def compute_together(
        cls, jobs: Sequence["ComputeStatistic"], inputs: Sequence[StatisticInputs[Artifact]]
    ) -> list[Content]:
        """See `Job.compute_together`: all Fishers of a client come from one pass, if the settings say so.

        Raises:
            DivergedClientError: names the client and the statistic that is not finite.
        """
        first, chosen = jobs[0], {job.statistic: job.bound for job in jobs}
        local = first.local(inputs[0])
        contents: dict[type[Statistic], Content] = {}
        for group in group_by_pass(first.place.fisher, list(chosen)):
            contents |= first._compute(local, [chosen[one] for one in group])
        return [contents[job.statistic] for job in jobs]

    def _compute(self, local: Local, group: Sequence["BoundStatistic"]) -> dict[type[Statistic], Content]:
        """Compute statistics that share a pass over the data, whose seconds count for each."""
        found = (bound.statistic.approximation for bound in group)
        wanted = frozenset(one for one in found if one is not None)
        local = replace(local, approximations=wanted)
        begun = time.perf_counter()
        if wanted:
            _ = local.fisher
        pass_seconds = time.perf_counter() - begun
        contents = {}
        for bound in group:
            begun = time.perf_counter()
            statistic = bound.compute(local)
            tensors = {name: tensor.cpu().contiguous() for name, tensor in statistic.tensors.items()}
            seconds = time.perf_counter() - begun + (0 if bound.statistic.approximation is None else pass_seconds)
            try:
                statistic.require_finite()
            except DivergedClientError as error:
                raise DivergedClientError(f"{self.whose}: {error}") from error
            contents[bound.statistic] = Content(
                tensors={TENSORS: tensors},
                documents={FISHER: scatter} if (scatter := self._scatter(local, bound)) else {},
                timings={"seconds": seconds},
            )
        return contents

    @staticmethod
    def _scatter(local: Local, bound: "BoundStatistic") -> dict[str, float]:
        """Say how much a Fisher scatters, where it may."""
        scatter = None if bound.statistic.approximation is None else local.fisher.scatter
        return {} if scatter is None else {"scatter": scatter}

    def private(self) -> dict[str, Any]:
        """Say what belongs to the key beside: nothing without differential privacy."""
        return {}

    def local(self, inputs: StatisticInputs[Artifact]) -> Local:
        """Take a client as it is after its training.

        Args:
            inputs: the artifacts.

        Returns:
            What statistics are computed from.
        """
        place = self.place
        trained = {name: tensor.to(place.device) for name, tensor in read_tensors(inputs.trained, TENSORS).items()}
        network = place.spec.load(trained).eval()
        return local_with(network, place, inputs, self.client, self.generator(Stream.FISHER))


def read_scatter(statistic: Artifact) -> float:
    """Read how far a client's Fisher is expected to be off because directions were drawn.

    Args:
        statistic: what was computed of the client, by an estimator that may draw.

    Returns:
        See `Fisher.scatter`.
    """
    return read_document(statistic, FISHER)["scatter"]


def local_with(
    network: nn.Module, place: Place, inputs: StartInputs[Artifact], client: int, generator: torch.Generator
) -> Local:
    """Show a client a network.

    Args:
        network: its own after training or another, in evaluation mode on the federation's device.
        place: the federation.
        inputs: the data set, who holds what, and the weights that the client started from.
        client: its number.
        generator: draws what an estimator samples, on the CPU.

    Returns:
        What statistics are computed from.
    """
    return Local(
        network=network,
        initial=load_start(inputs.start, place.device),
        examples=examples_of(place, inputs, client),
        classes=place.dataset.classes,
        batch_size=place.train.batch_size,
        settings=place.fisher,
        approximations=frozenset(),
        generator=generator,
    )


def group_by_pass(settings: FisherSettings, statistics: Sequence[type[Statistic]]) -> list[tuple[type[Statistic], ...]]:
    """Group statistics by passes over the data.

    The full Fisher always has its own: it leaves little memory to the others, and how many examples they hold at a
    time, and hence how their sums round, must not depend on their company.

    Args:
        settings: say whether Fishers share a pass.
        statistics: of one client.

    Returns:
        The groups, each computed together.
    """
    if settings.passes == "separate":
        return [(one,) for one in statistics]
    alone = [one for one in statistics if one.approximation is Approximation.DENSE]
    together = tuple(one for one in statistics if one not in alone)
    return [*([together] if together else []), *((one,) for one in alone)]
