"""What differential privacy asks of each client of a federation."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from fedfisher_core.client.objectives.binding import BoundObjective
from fedfisher_core.client.objectives.objective import Knowledge, objectives
from fedfisher_core.client.training import count_steps
from fedfisher_core.errors import InputError
from fedfisher_core.privacy.accountant import Noise, calibrate
from fedfisher_core.privacy.fishers import require_private, require_private_fisher
from fedfisher_core.settings import FederationSettings, PrivacySettings, TrainSettings

if TYPE_CHECKING:
    from fedfisher_core.client.bound import BoundStatistic

# A client with so many examples needs the least noise: what is out of its reach is out of anybody's.
_MANY_EXAMPLES = 10**6


@dataclass(frozen=True)
class Budget:
    """What a client may spend on all that it releases.

    Args:
        privacy: how much.
        train: how it trains.
        statistics: what it uploads.
    """

    privacy: PrivacySettings
    train: TrainSettings
    statistics: tuple["BoundStatistic", ...]

    def noise(self, num_examples: int) -> Noise:
        """Find the noise that keeps within the budget.

        Args:
            num_examples: of the client.

        Returns:
            The noise.

        Raises:
            InputError: there is none.
        """
        mechanisms = sum(one.statistic.mechanisms or 0 for one in self.statistics)
        steps = count_steps(self.train, num_examples)
        return _calibrate(self.privacy, num_examples, self.train.batch_size, steps, mechanisms)

    def require_possible(self) -> None:
        """Check that a client can keep within the budget if only it has enough examples.

        Raises:
            InputError: names the setting, its value and what is allowed.
        """
        self.noise(_MANY_EXAMPLES)

    def described(self) -> dict[str, Any]:
        """Say what belongs to the key of everything that the client releases."""
        # Those that follow from the weights cost nothing.
        releases = {one.statistic.name: one.described() for one in self.statistics if one.statistic.mechanisms}
        # The clip of a statistic that the client does not send changes nothing, the noise of the others included.
        unused = set() if "input_moments" in releases else {"input_moments_clip"}
        return {"privacy": {**self.privacy.model_dump(mode="json", exclude=unused), "releases": releases}}


@cache
def _calibrate(privacy: PrivacySettings, num_examples: int, batch_size: int, steps: int, releases: int) -> Noise:
    """Calibrate once for training, statistics and checks, as it takes about a second."""
    return calibrate(privacy, num_examples=num_examples, batch_size=batch_size, steps=steps, releases=releases)


def require_privacy(settings: FederationSettings, label: str, uploads: tuple["BoundStatistic", ...]) -> None:
    """Check that a method's uploads can be released with differential privacy.

    Args:
        settings: of the federation.
        label: the method's.
        uploads: its statistics.

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


def require_private_objective(label: str, bound: BoundObjective) -> None:
    """Check that clients can minimise an objective with differential privacy.

    Args:
        label: the objective's.
        bound: the objective.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    reads = bound.objective.reads
    if not reads:
        return
    reason = (
        f"reads {Knowledge.LABEL_COUNTS}, which no budget counts"
        if Knowledge.LABEL_COUNTS in reads
        else f"has a gradient beside those of the examples, as it reads {reads[0]}; DP-SGD clips gradients of examples"
    )
    able = ", ".join(name for name in objectives if not objectives.get(name).reads)
    raise InputError(f"train.objective={label!r} with privacy: {bound.objective.name!r} {reason}; allowed: {able}")
