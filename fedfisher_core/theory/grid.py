"""What the two-layer experiment measures, as settings."""

import itertools
from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from fedfisher_core.settings import Strict

Grid = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class TwoLayerGrid(Strict):
    """Clients, widths and steps of the two-layer experiment; the numbers of the paper's own are not known.

    Attributes:
        clients: number of clients.
        samples: number of samples of each client.
        dimensions: dimension of the inputs.
        model_heterogeneity: variance of the mean of a client's true model.
        data_heterogeneity: variance of the mean of a client's inputs.
        noise: standard deviation of the targets' noise.
        learning_rate: step size of the clients' gradient descent.
        widths: numbers of hidden units of the first curve.
        steps_of_widths: number of local steps all along the first curve.
        steps: numbers of local steps of the second curve.
        width_of_steps: number of hidden units all along the second curve.
        seeds: each draws its own data and initial weights.
        cutoff: eigenvalues of the Gram matrix up to this fraction of the largest count as 0.
    """

    clients: PositiveInt = 5
    samples: PositiveInt = 20
    dimensions: PositiveInt = 10
    model_heterogeneity: NonNegativeFloat = 1.0
    data_heterogeneity: NonNegativeFloat = 1.0
    noise: NonNegativeFloat = 0.0
    learning_rate: PositiveFloat = 0.5
    widths: Grid = (16, 32, 64, 128, 256, 512, 1024, 2048)
    steps_of_widths: PositiveInt = 256
    steps: Grid = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    width_of_steps: PositiveInt = 256
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = tuple(range(10))
    cutoff: Annotated[float, Field(ge=0, lt=1)] = 1e-10

    @field_validator("widths", "steps", "seeds")
    @classmethod
    def _increasing(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if any(after <= before for before, after in itertools.pairwise(values)):
            raise ValueError("allowed: increasing numbers")
        return values
