"""Computing statistics of further networks, which a client trains for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from torch import nn

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.errors import DivergedClientError, InputError
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.place import POOLED
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.models.spec import models
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.settings import FederationSettings
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Step


@dataclass(frozen=True)
class ComputeByTraining(ComputeStatistic):
    """Compute a statistic of further networks of a client; all statistics of one task share the networks.

    A job of its own, so that an edit of what trains makes no other statistic anew.
    """

    def step(self, inputs: StatisticInputs[Artifact]) -> Step:
        """See `Job.step`; what decides the training decides the statistic."""
        step, trainer, family = super().step(inputs), self._trainer, models.get(self.place.spec.name)
        return replace(
            step,
            code=source_digest(type(self), self.statistic, family, *trainer.objective.sources),
            settings={
                **step.settings,
                "train": trainer.described,
                "fisher": self.place.fisher.described(),
                "seed": self.place.cell.seed,
                "client": self.client,
            },
        )

    def local(self, inputs: StatisticInputs[Artifact]) -> Local:
        """See `ComputeStatistic.local`; it can train again."""
        local = super().local(inputs)
        return replace(local, trainer=self._trained_again(inputs, local))

    @property
    def _trainer(self) -> TrainClient:
        return TrainClient(self.place, self.client, name=self.name)

    def _trained_again(self, inputs: StatisticInputs[Artifact], local: Local) -> Callable[[int], nn.Module]:
        place, trainer = self.place, self._trainer
        started = TrainingInputs(data=inputs.data, partition=inputs.partition, start=inputs.start, before={})
        past = trainer.memory.of_client(started)

        @cache
        def trained(number: int) -> nn.Module:
            shared, own = (
                torch_generator(place.cell.seed, Stream.MODES, branch + 1, turn=number + 1)
                for branch in (POOLED, self.client)
            )
            start = {name: tensor.to(place.device) for name, tensor in place.spec.initialise(shared).items()}
            network = place.spec.load(start)
            try:
                trainer.train(network, local.examples, own, past)
            except DivergedClientError as error:
                raise DivergedClientError(f"{self.whose}, further network {number}: {error}") from error
            return network.eval()

        return trained


def require_starts(settings: FederationSettings, label: str, uploads: Sequence[type[Statistic]]) -> None:
    """Check that there is more than one start to train from.

    Args:
        settings: of the federations.
        label: of the method.
        uploads: its statistics.

    Raises:
        InputError: clients start from pre-trained weights, of which there is one set.
    """
    again = [one.name for one in uploads if one.trains_again]
    if again and settings.model.pretrained is not None:
        raise InputError(
            f"model.pretrained={settings.model.pretrained!r}, but {again[0]!r} of method {label!r} is of further "
            "networks, each from a start of its own; allowed: no pre-trained weights"
        )
