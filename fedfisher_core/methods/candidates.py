"""Settings that list several values, of which the best on the server's validation images is kept."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

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
    """Merge with each value, and keep the model that scores best on the validation set; the first of equals.

    Args:
        server: scores the models; a single value needs no score.
        values: to be tried.
        merge: makes a model with one of them.
        name: of the setting.

    Returns:
        The model, with its value and, of several, its score.

    Raises:
        InputError: there are several values and no validation set.
    """
    candidates = [merge(value) for value in values]
    if len(candidates) == 1:
        return Aggregate.of(candidates[0], **{name: values[0]})
    score = server.scorer()
    scores = [score(candidate) for candidate in candidates]
    best = scores.index(max(scores))
    return Aggregate.of(candidates[best], **{name: values[best]}, validation_accuracy=scores[best])
