"""What differential privacy asks of each client of a federation."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.errors import InputError
from fedfisher_core.privacy.accountant import Noise, calibrate
from fedfisher_core.privacy.fishers import require_private, require_private_fisher
from fedfisher_core.privacy.training import steps_of
from fedfisher_core.settings import FederationSettings, PrivacySettings

# A client with so many examples needs the least noise: what is out of its reach is out of anybody's.
_MANY_EXAMPLES = 10**6


def releases_of(statistics: Iterable[type[Statistic]]) -> list[str]:
    """List what a client releases beside its weights, at a cost of its own.

    Args:
        statistics: the statistics that it uploads.

    Returns:
        Their names, in alphabetical order.
    """
    return sorted(one.name for one in statistics if one.mechanisms)


def noise_of(settings: FederationSettings, num_examples: int, statistics: Iterable[type[Statistic]]) -> Noise | None:
    """Find the noise of a client.

    Args:
        settings: of the federation; they say how much privacy and how long the training.
        num_examples: of the client.
        statistics: the statistics that it uploads, which share its budget.

    Returns:
        The noise; None without differential privacy.

    Raises:
        InputError: no noise keeps within the budget.
    """
    privacy, train = settings.privacy, settings.train
    if privacy is None:
        return None
    mechanisms = sum(one.mechanisms or 0 for one in statistics)
    return _calibrate(privacy, num_examples, train.batch_size, steps_of(train, num_examples), mechanisms)


@cache
def _calibrate(privacy: PrivacySettings, num_examples: int, batch_size: int, steps: int, releases: int) -> Noise:
    """Calibrate once for training, statistics and checks, as it takes about a second."""
    return calibrate(privacy, num_examples=num_examples, batch_size=batch_size, steps=steps, releases=releases)


def described(settings: FederationSettings, statistics: Iterable[type[Statistic]]) -> dict[str, Any]:
    """Say what belongs to the key of everything that a client releases.

    Args:
        settings: of the federation.
        statistics: the statistics that the client uploads.

    Returns:
        Nothing without differential privacy.
    """
    privacy = settings.privacy
    if privacy is None:
        return {}
    return {"privacy": {**privacy.model_dump(mode="json"), "releases": releases_of(statistics)}}


def require_privacy(settings: FederationSettings, label: str, statistics: Iterable[type[Statistic]]) -> None:
    """Check that a method's uploads can be released with differential privacy, and within the budget.

    Args:
        settings: of the federation.
        label: the method's.
        statistics: its uploads.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if settings.privacy is None:
        return
    statistics = tuple(statistics)
    require_private_fisher(settings.fisher)
    try:
        require_private(statistics)
    except InputError as error:
        raise InputError(f"method {label!r}: {error}") from error
    noise_of(settings, _MANY_EXAMPLES, statistics)
