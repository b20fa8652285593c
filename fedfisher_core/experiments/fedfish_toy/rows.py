"""The results of the toy regression as tidy rows."""

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import ConfigDict

from fedfisher_core.experiments.fedfish_toy.settings import RegressionGrid

# Rows are read without torch, which takes seconds.
if TYPE_CHECKING:
    from fedfisher_core.experiments.fedfish_toy.plan import Measured

METHODS = ("fedavg", "fedfish")
"""The kinds of global models: fields of `Stage`."""


@dataclass(frozen=True)
class FedFishToyRow:
    """The errors of one global model, with one seed.

    Args:
        experiment: distinguishes these rows from those of other experiments.
        overlap: part of its interval that a client shares with the next one.
        local_epochs: of every client.
        method: "fedavg" or "fedfish".
        global_error: mean squared error against the true function, over the union of the clients' intervals.
        local_errors: mean squared error of each client's own model on its own samples, before aggregation.
        client_errors: mean squared error of the global model on each client's own samples.
        barrier: the client-server barrier, the mean over clients of client_errors less local_errors (Eq. 5).
        artifact: key of the artifact that holds the numbers.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    benchmark: str
    experiment: Literal["fedfish_toy"]
    overlap: float
    local_epochs: int
    method: str
    seed: int
    global_error: float
    local_errors: tuple[float, ...]
    client_errors: tuple[float, ...]
    barrier: float
    artifact: str

    @property
    def local_error(self) -> float:
        """Mean over clients of their own models' errors."""
        return statistics.fmean(self.local_errors)

    @property
    def best_fitted(self) -> float:
        """Error of the global model on the client's samples that it fits best."""
        return min(self.client_errors)

    @property
    def worst_fitted(self) -> float:
        """Error of the global model on the client's samples that it fits worst."""
        return max(self.client_errors)


def rows_of(
    benchmark: str, grid: RegressionGrid, overlap: float, seed: int, measured: "Measured", artifact: str
) -> list[FedFishToyRow]:
    """Lay out the errors of one federation: a row for every number of local epochs and every method.

    Args:
        artifact: key of the artifact that holds the errors.
    """
    rows = []
    for epochs, stage in zip(grid.epochs, measured.stages, strict=True):
        for method in METHODS:
            model = getattr(stage, method)
            differences = [
                after - before for after, before in zip(model.client_errors, stage.local_errors, strict=True)
            ]
            rows.append(
                FedFishToyRow(
                    benchmark=benchmark,
                    experiment="fedfish_toy",
                    overlap=overlap,
                    local_epochs=epochs,
                    method=method,
                    seed=seed,
                    global_error=model.global_error,
                    local_errors=stage.local_errors,
                    client_errors=model.client_errors,
                    barrier=statistics.fmean(differences),
                    artifact=artifact,
                )
            )
    return rows
