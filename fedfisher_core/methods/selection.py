"""Choosing among several global models on the server's validation images."""

from collections.abc import Iterable
from dataclasses import replace

from fedfisher_core.evaluation.predictions import accuracy
from fedfisher_core.methods.server import Aggregate, Server


def best_on_validation(server: Server, candidates: Iterable[Aggregate]) -> Aggregate:
    """Keep the candidate that predicts best; one alone is kept without a look at any image.

    Args:
        server: holds the images.
        candidates: at least one, of one network each; they are held no longer than needed.

    Returns:
        The candidate of highest accuracy, the first of several, with the accuracy among its details.

    Raises:
        InputError: there are several candidates and no images.
    """
    remaining = iter(candidates)
    best, highest = next(remaining), None
    for candidate in remaining:
        if highest is None:
            highest = _score(server, best)
        reached = _score(server, candidate)
        if reached > highest:
            best, highest = candidate, reached
    return best if highest is None else replace(best, details=best.details | {"validation_accuracy": highest})


def _score(server: Server, candidate: Aggregate) -> float:
    (network,) = candidate.networks
    return accuracy((candidate.spec or server.spec).load(network).eval(), server.validation)
