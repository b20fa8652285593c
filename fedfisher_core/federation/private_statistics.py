"""Computing what a client releases with differential privacy beside its weights."""

from dataclasses import dataclass, fields
from typing import Any

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.federation.privacy import described, noise_of
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.privacy.local import PrivateLocal
from fedfisher_core.store import Artifact


@dataclass(frozen=True)
class ReleaseStatistic(ComputeStatistic):
    """Compute one statistic of one client, and release it by the Gaussian mechanism.

    Args:
        statistics: all that the client uploads, which shares its budget.
    """

    statistics: tuple[type[Statistic], ...]

    def private(self) -> dict[str, Any]:
        """See `ComputeStatistic.private`."""
        return described(self.place.settings, self.statistics) if self.statistic.mechanisms else {}

    def local(self, inputs: StatisticInputs[Artifact]) -> Local:
        """See `ComputeStatistic.local`."""
        plain, settings = super().local(inputs), self.place.settings
        noise = noise_of(settings, len(plain.examples), self.statistics)
        assert noise is not None
        assert settings.privacy is not None
        shared: dict[str, Any] = {field.name: getattr(plain, field.name) for field in fields(Local)}
        return PrivateLocal(**shared, privacy=settings.privacy, noise=noise)
