"""The settings of the two-layer experiment, and its results as tidy rows."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

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

# Rows are read without torch, which takes seconds.
if TYPE_CHECKING:
    from fedfisher_core.experiments.two_layer.plan import Errors, SeedErrors

_MAX_SAMPLES = 20_000
_MAX_NUMBERS = 5 * 10**7

CurveName = Literal["width", "local_steps"]
METHODS = ("fedfisher", "fedavg", "local")
"""The kinds of models: the fields of `Errors`."""


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


@dataclass(frozen=True)
class TwoLayerRow:
    """The training error of one kind of model at one point of a curve, with one seed.

    Args:
        experiment: distinguishes these rows from those of other experiments.
        curve: what varies along the curve.
        width: number of hidden units.
        local_steps: of each client.
        method: "fedfisher", "fedavg", or "local" for the clients' own models on their own data.
        training_error: mean of (z - y)^2 / 2.
        artifact: key of the artifact that holds the number.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    benchmark: str
    experiment: Literal["two_layer"]
    curve: CurveName
    width: int
    local_steps: int
    seed: int
    method: str
    training_error: float
    artifact: str

    @property
    def value(self) -> int:
        """The place on the curve's axis: the width or the number of local steps."""
        return self.width if self.curve == "width" else self.local_steps


def rows_of(
    benchmark: str, settings: TwoLayerGrid, seed: int, measured: "SeedErrors", artifact: str
) -> list[TwoLayerRow]:
    """Lay out the errors of one seed: a row for every point of both curves and every kind of model.

    Args:
        artifact: key of the artifact that holds the errors.
    """
    return [
        TwoLayerRow(
            benchmark=benchmark,
            experiment="two_layer",
            curve=curve,
            width=width,
            local_steps=local_steps,
            seed=seed,
            method=method,
            training_error=getattr(errors, method),
            artifact=artifact,
        )
        for curve, width, local_steps, errors in _points(settings, measured)
        for method in METHODS
    ]


def _points(settings: TwoLayerGrid, measured: "SeedErrors") -> "Iterator[tuple[CurveName, int, int, Errors]]":
    for width, errors in zip(settings.widths, measured.widths, strict=True):
        yield "width", width, settings.steps_of_widths, errors
    for steps, errors in zip(settings.steps, measured.steps, strict=True):
        yield "local_steps", settings.width_of_steps, steps, errors
