"""Computing what a client uploads in addition to its weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import torch
from torch import nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.costs import Spent, Stopwatch
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import Artifact, Content, read_document, read_tensors, understood
from fedfisher_core.federation.federation import POOLED, ClientJob, Federation, R, StartInputs, TrainingInputs
from fedfisher_core.federation.mixed_ranks import with_rank_of
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.models.spec import models
from fedfisher_core.settings import FederationSettings, FisherSettings

FISHER = "fisher.json"
"""File of a statistic whose Fisher may depend on drawn directions."""


@dataclass(frozen=True)
class StatisticInputs(StartInputs[R]):
    """What a client has after its training; `trained` holds its weights."""

    trained: R


@dataclass(frozen=True)
class ComputeStatistic(ClientJob[StatisticInputs[Artifact]]):
    """Compute one statistic of one client."""

    kind: ClassVar[str] = "statistics"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "statistics"

    configured: ConfiguredStatistic

    @property
    def statistic(self) -> type[Statistic]:
        """What is computed."""
        return self.configured.statistic

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        return {
            "statistic": self.statistic.name,
            "code": code_of(self.statistic, models.get(self.federation.spec.name)),
            **({"settings": chosen} if (chosen := self.configured.described()) else {}),
            **({} if self.statistic.approximation is None else {"fisher": self.federation.fisher.described()}),
            "seed": self.federation.setting.seed,
            "client": self.client,
            **self.private(),
            **self.later,
            **self.numerics.described(),
        }

    def compute(self, inputs: StatisticInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: names the client and the statistic that is not finite.
        """
        (content,) = self.compute_together([self], [inputs])
        if isinstance(content, DivergedClientError):
            raise content
        return content

    @classmethod
    def compute_together(
        cls, jobs: Sequence["ComputeStatistic"], inputs: Sequence[StatisticInputs[Artifact]]
    ) -> list[Content | DivergedClientError]:
        """See `Job.compute_together`; all Fishers of a client share one pass, if the settings say so."""
        first, chosen = jobs[0], {job.statistic: job.configured for job in jobs}
        local = first.local(inputs[0])
        contents: dict[type[Statistic], Content | DivergedClientError] = {}
        for group in group_by_pass(first.federation.fisher, list(chosen)):
            contents |= first._compute(local, [chosen[one] for one in group])
        return [contents[job.statistic] for job in jobs]

    def _compute(
        self, local: Local, group: Sequence[ConfiguredStatistic]
    ) -> dict[type[Statistic], Content | DivergedClientError]:
        """Compute statistics that share a pass over the data; each counts the whole pass as its cost."""
        found = (configured.statistic.approximation for configured in group)
        wanted = frozenset(one for one in found if one is not None)
        local = replace(local, approximations=wanted)
        watch = Stopwatch(self.federation.device.type)
        if wanted:
            _ = local.fisher
        shared = watch.spent()
        contents: dict[type[Statistic], Content | DivergedClientError] = {}
        for configured in group:
            watch = Stopwatch(self.federation.device.type)
            statistic = configured.compute(local)
            tensors = {name: tensor.cpu().contiguous() for name, tensor in statistic.tensors.items()}
            spent = watch.spent() + (Spent() if configured.statistic.approximation is None else shared)
            try:
                statistic.require_finite()
            except DivergedClientError as error:
                contents[configured.statistic] = DivergedClientError(f"{self.owner}: {error}")
                continue
            contents[configured.statistic] = Content(
                tensors={TENSORS: tensors},
                documents={FISHER: scatter} if (scatter := self._scatter(local, configured)) else {},
                timings=spent.timings(),
            )
        return contents

    @staticmethod
    def _scatter(local: Local, configured: ConfiguredStatistic) -> dict[str, float]:
        """How much a Fisher scatters; empty where it can't."""
        scatter = None if configured.statistic.approximation is None else local.fisher.scatter
        return {} if scatter is None else {"scatter": scatter}

    def private(self) -> dict[str, Any]:
        """What the key has in addition; nothing without differential privacy."""
        return {}

    def local(self, inputs: StatisticInputs[Artifact]) -> Local:
        """Collect what statistics of a trained client are computed from."""
        network = self.federation.network(read_tensors(inputs.trained, TENSORS))
        return local_with(network, self.federation, inputs, self.client, self.generator(Stream.FISHER))


@understood
def read_scatter(statistic: Artifact) -> float:
    """Read how far a client's Fisher is expected to be off because directions were drawn; see `Fisher.scatter`."""
    return read_document(statistic, FISHER)["scatter"]


def local_with(
    network: nn.Module, federation: Federation, inputs: StartInputs[Artifact], client: int, generator: torch.Generator
) -> Local:
    """Collect what statistics of a network on a client's examples are computed from.

    Args:
        network: the client's own after training or another, in evaluation mode on the federation's device.
        generator: draws what an estimator samples, on the CPU.
    """
    return Local(
        network=network,
        initial=with_rank_of(client, federation, load_start(inputs.start, federation.device)),
        examples=examples_of(federation, inputs, client),
        classes=federation.dataset.classes,
        batch_size=federation.train.batch_size,
        settings=federation.fisher,
        approximations=frozenset(),
        generator=generator,
    )


def group_by_pass(settings: FisherSettings, statistics: Sequence[type[Statistic]]) -> list[tuple[type[Statistic], ...]]:
    """Group a client's statistics by passes over the data.

    The full Fisher always has its own pass. It leaves little memory to the others. The number of examples that they
    hold at a time, and hence how their sums round, must not depend on it.
    """
    if settings.passes == "separate":
        return [(one,) for one in statistics]
    alone = [one for one in statistics if one.approximation is Approximation.DENSE]
    together = tuple(one for one in statistics if one not in alone)
    return [*([together] if together else []), *((one,) for one in alone)]


@dataclass(frozen=True)
class ComputeByTraining(ComputeStatistic):
    """Compute a statistic of further networks of a client; all statistics of one task share the networks."""

    version: ClassVar[int] = 1

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; the training's settings belong to it."""
        trainer, family = self._trainer, models.get(self.federation.spec.name)
        return {
            **super().settings(),
            "code": code_of(self.statistic, family, *trainer.federation.objective.sources),
            "train": trainer.described,
            "fisher": self.federation.fisher.described(),
        }

    def local(self, inputs: StatisticInputs[Artifact]) -> Local:
        """See `ComputeStatistic.local`; it can train again."""
        local = super().local(inputs)
        return replace(local, trainer=self._trained_again(inputs, local))

    @property
    def _trainer(self) -> TrainClient:
        return TrainClient(self.federation, self.client, name=self.name)

    def _trained_again(self, inputs: StatisticInputs[Artifact], local: Local) -> Callable[[int], nn.Module]:
        federation, trainer = self.federation, self._trainer
        started = TrainingInputs(data=inputs.data, partition=inputs.partition, start=inputs.start, before={})
        past = trainer.memory.of_client(started)

        @cache
        def trained(number: int) -> nn.Module:
            shared, own = (
                torch_generator(federation.setting.seed, Stream.MODES, branch + 1, round_number=number + 1)
                for branch in (POOLED, self.client)
            )
            start = with_rank_of(self.client, federation, federation.spec.initialise(shared))
            network = federation.network(start)
            try:
                trainer.train(network, local.examples, own, past)
            except DivergedClientError as error:
                raise DivergedClientError(f"{self.owner}, further network {number}: {error}") from error
            return network.eval()

        return trained


def require_starts(settings: FederationSettings, label: str, uploads: Sequence[type[Statistic]]) -> None:
    """Check that further networks have different weights to start from.

    Raises:
        InputError: clients start from pre-trained weights, of which there is one set.
    """
    again = [one.name for one in uploads if one.trains_again]
    if again and settings.model.pretrained is not None:
        raise InputError(
            f"model.pretrained={settings.model.pretrained!r}, but {again[0]!r} of method {label!r} is of further "
            "networks, each from its own start; allowed: no pre-trained weights"
        )
