"""What differential privacy asks of each client of a federation."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from fedfisher_core.client.objectives.configured import ConfiguredObjective
from fedfisher_core.client.objectives.objective import Knowledge, objectives
from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.training import count_steps
from fedfisher_core.engine.errors import InputError
from fedfisher_core.privacy.accountant import Noise, calibrate
from fedfisher_core.privacy.fishers import require_private, require_private_fisher
from fedfisher_core.settings import FederationSettings, PrivacySettings, TrainSettings

# A client with so many examples needs the least noise. If it can't keep a budget, no client can.
_MANY_EXAMPLES = 10**6


@dataclass(frozen=True)
class Budget:
    """What a client may spend on all that it releases."""

    privacy: PrivacySettings
    train: TrainSettings
    statistics: tuple[ConfiguredStatistic, ...]

    def noise(self, num_examples: int) -> Noise:
        """Find the noise that keeps within the budget.

        Raises:
            InputError: no noise does.
        """
        mechanisms = sum(one.statistic.mechanisms or 0 for one in self.statistics)
        steps = count_steps(self.train, num_examples)
        return _calibrate(self.privacy, num_examples, self.train.batch_size, steps, mechanisms)

    def require_possible(self) -> None:
        """Check that a client with enough examples can keep within the budget.

        Raises:
            InputError: names the setting, its value and what is allowed.
        """
        self.noise(_MANY_EXAMPLES)

    def described(self) -> dict[str, Any]:
        """Describe what belongs to the key of everything that the client releases."""
        # Statistics that are computed from the weights alone cost nothing.
        releases = {one.statistic.name: one.described() for one in self.statistics if one.statistic.mechanisms}
        # The clip of a statistic that the client does not send changes nothing, not even the others' noise.
        unused = set() if "input_moments" in releases else {"input_moments_clip"}
        return {"privacy": {**self.privacy.model_dump(mode="json", exclude=unused), "releases": releases}}


@cache
def _calibrate(privacy: PrivacySettings, num_examples: int, batch_size: int, steps: int, releases: int) -> Noise:
    """Calibrate once for training, statistics and checks, as it takes about a second."""
    return calibrate(privacy, num_examples=num_examples, batch_size=batch_size, steps=steps, releases=releases)


def require_privacy(settings: FederationSettings, label: str, uploads: tuple[ConfiguredStatistic, ...]) -> None:
    """Check that a method's uploads can be released with differential privacy.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if settings.privacy is None:
        return
    require_private_fisher(settings.fisher)
    try:
        require_private(one.statistic for one in uploads)
    except InputError as error:
        raise InputError(f"method {label!r}: {error}") from error


def require_private_objective(label: str, configured: ConfiguredObjective) -> None:
    """Check that clients can minimise an objective with differential privacy.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    reads = configured.objective.reads
    if not reads:
        return
    reason = (
        f"reads {Knowledge.LABEL_COUNTS}, which no budget counts"
        if Knowledge.LABEL_COUNTS in reads
        else f"adds a gradient to those of the examples, as it reads {reads[0]}; DP-SGD clips gradients of examples"
    )
    able = ", ".join(name for name in objectives if not objectives.get(name).reads)
    raise InputError(f"train.objective={label!r} with privacy: {configured.objective.name!r} {reason}; allowed: {able}")
