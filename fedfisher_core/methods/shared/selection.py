"""Choosing among several global models on the server's validation images, and requirements of settings."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import Parameters

Fractions = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]
Factors = Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]


def tries_several(name: str) -> Callable[[Any], bool]:
    """Make a function for `validates` of a method's registration: whether the list `name` holds several values."""
    return lambda settings: len(getattr(settings, name)) > 1


def keep_best(server: Server, values: Sequence[float], merge: Callable[[float], Parameters], *, name: str) -> Aggregate:
    """Merge with each value of the setting `name`, and keep the model that predicts best; see `best_on_validation`.

    Returns:
        The model, with its value and, of several, its accuracy.

    Raises:
        InputError: there are several values and no images.
    """
    return best_on_validation(server, (Aggregate.of(merge(value), **{name: value}) for value in values))


def best_on_validation(server: Server, candidates: Iterable[Aggregate]) -> Aggregate:
    """Keep the candidate that predicts best, the first of several; one alone is kept without a look at any image.

    Args:
        candidates: at least one, of one network each; they are held no longer than needed.

    Returns:
        The candidate, with the accuracy among its details.

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


def require_pivot(pivot: int, clients: int) -> None:
    """Refuse, by an InputError, a pivot that is not the number of a client."""
    if pivot >= clients:
        raise InputError(f"pivot={pivot}: allowed: 0 to {clients - 1}, one of the clients")
