"""The results of the two-layer experiment as tidy rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import ConfigDict

from fedfisher_core.experiments.two_layer.settings import TwoLayerGrid

# Rows are read without torch, which takes seconds.
if TYPE_CHECKING:
    from fedfisher_core.experiments.two_layer.plan import Errors, SeedErrors

CurveName = Literal["width", "local_steps"]
METHODS = ("fedfisher", "fedavg", "local")
"""The kinds of models: the fields of `Errors`."""


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
