"""Training one client with differential privacy."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.training import Trained
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Examples
from fedfisher_core.federation.privacy import described, noise_of
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.privacy.training import train_privately


@dataclass(frozen=True)
class TrainPrivately(TrainClient):
    """Train one client by DP-SGD.

    Args:
        statistics: what it uploads, all of which shares its budget.
    """

    statistics: tuple[type[Statistic], ...]

    def private(self) -> dict[str, Any]:
        """See `TrainClient.private`."""
        return described(self.place.settings, self.statistics)

    def train(self, network: nn.Module, examples: Examples) -> tuple[Trained, dict[str, Any]]:
        """See `TrainClient.train`; the noise is noted."""
        settings = self.place.settings
        noise = noise_of(settings, len(examples), self.statistics)
        assert noise is not None
        assert settings.privacy is not None
        trained = train_privately(
            network,
            examples,
            settings.train,
            noise_multiplier=noise.training,
            gradient_clip=settings.privacy.gradient_clip,
            generator=self.generator(),
            augmented=datasets.get(self.place.cell.dataset).augment,
        )
        return trained, {"noise": asdict(noise)}
