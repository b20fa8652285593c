"""Whether secure aggregation can end with a sum, asked before any client is trained."""

from fedfisher_core.errors import InputError, shown
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.secure.terms import default_threshold, require_threshold


def require_protocol(label: str, bound: BoundMethod, clients: int) -> None:
    """Check that enough clients stay to the end of secure aggregation.

    Args:
        label: the method's.
        bound: the method; its wire says how it is aggregated.
        clients: how many there are.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if bound.summation is None:
        return
    secure = bound.wire.secure
    unknown = sorted(number for number in secure.dropouts if number >= clients)
    if unknown:
        raise InputError(f"method {label!r}: wire.secure.dropouts names clients {unknown}; allowed: 0 to {clients - 1}")
    active = secure.adversary == "active"
    threshold = default_threshold(clients, active=active) if secure.threshold is None else secure.threshold
    try:
        require_threshold(threshold, clients, active=active)
    except InputError as error:
        raise InputError(f"method {label!r}: {error}") from error
    survivors = [number for number in range(clients) if number not in secure.dropouts]
    if len(survivors) < threshold:
        raise InputError(
            f"method {label!r}: with wire.secure.dropouts, {len(survivors)} of {clients} clients stay to the end "
            f"(survivors: {shown(survivors)}); allowed: wire.secure.threshold={threshold} or more"
        )
