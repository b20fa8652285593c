"""Choosing among several global models on the server's validation images."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from fedfisher_core.evaluation.predictions import accuracy
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import Parameters

Fractions = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]
Factors = Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]


def tries_several(name: str) -> Callable[[Any], bool]:
    """Tell of settings whether a list holds several values.

    Args:
        name: of the list.

    Returns:
        A function of a method's settings, for `validates` of its registration.
    """
    return lambda settings: len(getattr(settings, name)) > 1


def keep_best(server: Server, values: Sequence[float], merge: Callable[[float], Parameters], *, name: str) -> Aggregate:
    """Merge with each value, and keep the model that predicts best; see `best_on_validation`.

    Args:
        server: holds the images.
        values: to be tried.
        merge: makes a model with one of them.
        name: of the setting.

    Returns:
        The model, with its value and, of several, its accuracy.

    Raises:
        InputError: there are several values and no images.
    """
    return best_on_validation(server, (Aggregate.of(merge(value), **{name: value}) for value in values))


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
