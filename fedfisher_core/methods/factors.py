"""The scale of the Kronecker factors that a server gets."""

from fedfisher_core.client.local import estimator_of
from fedfisher_core.fisher.estimators import nominal_directions
from fedfisher_core.methods.server import Server


def factor_scale(server: Server) -> float:
    """Say how much larger a factor A is than the second moment of a layer's inputs, and G smaller than that of slopes.

    Args:
        server: knows the network, and how Fishers are computed.

    Returns:
        sqrt(C'), with the C' nominal directions of `Block.kronecker`.
    """
    return float(nominal_directions(estimator_of(server.fisher), server.spec.classes) ** 0.5)
