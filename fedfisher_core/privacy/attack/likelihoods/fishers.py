"""What Fishers have in common as evidence."""

from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.estimators import Empirical
from fedfisher_core.privacy.attack.evidence import Knowledge


def require_expected(statistic: type[Statistic], knowledge: Knowledge) -> None:
    """Make sure that clients' Fishers are expectations over the network's own labels.

    Raises:
        InputError: the Fishers are of true labels, which generated images do not have.
    """
    if isinstance(knowledge.estimator, Empirical):
        raise InputError(
            f"statistic {statistic.name!r}: fisher.estimator='empirical' needs the labels of generated images, which "
            f"have none; allowed: 'auto', 'exact', 'truncated', 'monte_carlo'"
        )
