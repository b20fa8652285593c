"""The settings of FedFish's toy regression."""

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
    Strict,
    TrackingSettings,
    WorkSettings,
)

FunctionName = Literal["sine", "chirp"]

_MAX_PARAMETERS = 10**7
_MAX_SAMPLES = 10**6


class RegressionGrid(Strict):
    """Clients, overlaps and local epochs of the toy regression; the paper's own numbers are not known.

    Attributes:
        overlaps: parts of its interval that a client shares with the next one; 1 is full overlap, 0 none.
        epochs: numbers of local epochs after which the models are merged, all in one training.
        function: what is learned on [-1, 1]. With u = (x + 1) / 2, sine is sin(2 pi u), and chirp sin(4 pi u^2).
        samples: of each client.
        noise: standard deviation of the targets' noise.
        widths: units of the three hidden layers of the network.
        learning_rate: eta_c of the clients' SGD, which has no momentum.
        batch_size: of the training, and of the gradients that are squared.
        global_step: eta_g of FedAvg and FedFish; with 1, FedAvg is the mean of the clients.
        points: number of inputs, evenly spread over the domain, at which functions are compared and drawn.
        seeds: each draws its own data, initial weights and batches.
    """

    clients: Annotated[int, Field(ge=2, le=20)] = 2
    overlaps: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1, max_length=6)] = (
        1.0,
        0.5,
        0.0,
    )
    epochs: Annotated[tuple[Count, ...], Field(min_length=1, max_length=6)] = (10, 50, 200)
    function: FunctionName = "sine"
    samples: Count = 100
    noise: Nonnegative = 0.05
    widths: tuple[Count, Count, Count] = (64, 64, 64)
    learning_rate: Positive = 0.1
    batch_size: Count = 20
    global_step: Positive = 1.0
    points: Annotated[int, Field(ge=2, le=2001)] = 201
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=1000)] = tuple(range(10))

    @field_validator("epochs", "seeds")
    @classmethod
    def _increasing(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if any(after <= before for before, after in itertools.pairwise(values)):
            raise ValueError("allowed: increasing numbers")
        return values

    @field_validator("overlaps")
    @classmethod
    def _decreasing(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(after >= before for before, after in itertools.pairwise(values)):
            raise ValueError("allowed: decreasing numbers, from full overlap towards none")
        return values

    @model_validator(mode="after")
    def _fits_memory(self) -> "RegressionGrid":
        first, second, third = self.widths
        parameters = first * second + second * third
        if self.clients * parameters > _MAX_PARAMETERS:
            raise ValueError(
                f"widths={list(self.widths)} with clients={self.clients} need {self.clients * parameters:,} weights; "
                f"allowed: up to {_MAX_PARAMETERS:,}"
            )
        samples = self.clients * self.samples
        if samples > _MAX_SAMPLES:
            raise ValueError(
                f"clients={self.clients} with samples={self.samples} have {samples:,} samples; allowed: up to "
                f"{_MAX_SAMPLES:,}"
            )
        return self


class FedFishToySettings(ExperimentSettings):
    """The toy regression: what is measured, and how it is carried out."""

    name: Name = "fedfish_toy"
    experiment: Literal["fedfish_toy"] = "fedfish_toy"
    toy: RegressionGrid = RegressionGrid()
    run: WorkSettings = WorkSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: PageSettings = PageSettings()
