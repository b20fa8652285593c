"""The settings of the two-layer experiment."""

import itertools
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from fedfisher_core.settings import (
    Count,
    ExperimentSettings,
    Name,
    Nonnegative,
    PageSettings,
    Positive,
    Seed,
    Steps,
    Strict,
    TrackingSettings,
    WorkSettings,
)

_MAX_SAMPLES = 20_000
_MAX_NUMBERS = 5 * 10**7


class TwoLayerGrid(Strict):
    """Clients, widths and steps of the two-layer experiment; the paper's own numbers are not known.

    Attributes:
        samples: of each client.
        dimensions: of the inputs.
        model_heterogeneity: variance of the mean of a client's true model.
        data_heterogeneity: variance of the mean of a client's inputs.
        noise: standard deviation of the targets' noise.
        learning_rate: step size of the clients' gradient descent.
        widths: numbers of hidden units along the first curve.
        steps_of_widths: number of local steps at each point of the first curve.
        steps: numbers of local steps along the second curve.
        width_of_steps: number of hidden units at each point of the second curve.
        seeds: each draws its own data and initial weights.
        cutoff: eigenvalues of the Gram matrix up to this fraction of the largest count as 0.
    """

    clients: Count = 5
    samples: Count = 20
    dimensions: Count = 10
    model_heterogeneity: Nonnegative = 1.0
    data_heterogeneity: Nonnegative = 1.0
    noise: Nonnegative = 0.0
    learning_rate: Positive = 0.5
    widths: Annotated[tuple[Count, ...], Field(min_length=1)] = (16, 32, 64, 128, 256, 512, 1024, 2048)
    steps_of_widths: Steps = 256
    steps: Annotated[tuple[Steps, ...], Field(min_length=1)] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    width_of_steps: Count = 256
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=10_000)] = tuple(range(10))
    cutoff: Annotated[float, Field(ge=0, lt=1)] = 1e-10

    @field_validator("widths", "steps", "seeds")
    @classmethod
    def _increasing(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if any(after <= before for before, after in itertools.pairwise(values)):
            raise ValueError("allowed: increasing numbers")
        return values

    @model_validator(mode="after")
    def _fits_memory(self) -> "TwoLayerGrid":
        samples = self.clients * self.samples
        if samples > _MAX_SAMPLES:
            raise ValueError(
                f"clients={self.clients} with samples={self.samples} have {samples:,} samples; allowed: up to "
                f"{_MAX_SAMPLES:,}"
            )
        width = max(*self.widths, self.width_of_steps)
        numbers = width * max(self.clients * self.dimensions, samples)
        if numbers > _MAX_NUMBERS:
            raise ValueError(
                f"clients={self.clients}, samples={self.samples} and dimensions={self.dimensions} at width {width} "
                f"need arrays of {numbers:,} numbers; allowed: up to {_MAX_NUMBERS:,}"
            )
        return self


class TwoLayerSettings(ExperimentSettings):
    """The two-layer experiment: what is measured, and how it is carried out."""

    name: Name = "theory_two_layer"
    experiment: Literal["two_layer"] = "two_layer"
    two_layer: TwoLayerGrid = TwoLayerGrid()
    run: WorkSettings = WorkSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: PageSettings = PageSettings()
