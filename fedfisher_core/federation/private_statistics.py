"""Computing what a client releases with differential privacy beside its weights."""

from dataclasses import dataclass
from typing import Any

from fedfisher_core.client.local import Local
from fedfisher_core.federation.privacy import Budget
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.privacy.local import PrivateLocal
from fedfisher_core.seeds import Stream, torch_generator_for
from fedfisher_core.store import Artifact


@dataclass(frozen=True)
class ReleaseStatistic(ComputeStatistic):
    """Compute one statistic of one client, and release it by the Gaussian mechanism.

    Args:
        budget: of the client.
    """

    budget: Budget

    def private(self) -> dict[str, Any]:
        """See `ComputeStatistic.private`."""
        return self.budget.described() if self.statistic.mechanisms else {}

    def local(self, inputs: StatisticInputs[Artifact]) -> Local:
        """See `ComputeStatistic.local`."""
        plain = super().local(inputs)
        noise = self.budget.noise(len(plain.examples))
        # What was trained is another client's under any other setting, so that no two releases have the same noise.
        use = {"client": inputs.trained.digest, **self.budget.described()}
        generator = torch_generator_for(use, self.place.cell.seed, Stream.FISHER, self.branch)
        shared = {**vars(plain), "generator": generator}
        return PrivateLocal(**shared, privacy=self.budget.privacy, noise=noise)
