"""The results of the toy regression as tidy rows."""

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import ConfigDict

from fedfisher_core.regression.grid import RegressionGrid

if TYPE_CHECKING:
    from fedfisher_core.regression.measuring import Measured

METHODS = ("fedavg", "fedfish")
"""The kinds of global models, as `Stage` has them."""


@dataclass(frozen=True)
class FedFishToyRow:
    """The errors of one global model, with one seed.

    Args:
        benchmark: name of the benchmark.
        experiment: "fedfish_toy", which tells these rows from those of other experiments.
        overlap: part of its interval that a client shares with the next one.
        local_epochs: of every client.
        method: "fedavg" or "fedfish".
        seed: seed of the row.
        global_error: mean squared error against the true function, over the union of the clients' intervals.
        local_errors: mean squared error of each client's own model on its own samples, before aggregation.
        client_errors: mean squared error of the global model on each client's own samples.
        barrier: the client-server barrier, the mean over clients of client_errors less local_errors (Eq. 5).
        artifact: key of the artifact that the numbers were read from.
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
        """Error of the global model on the samples that it fits best of all clients'."""
        return min(self.client_errors)

    @property
    def worst_fitted(self) -> float:
        """Error of the global model on the samples that it fits worst of all clients'."""
        return max(self.client_errors)


def rows_of(
    benchmark: str, grid: RegressionGrid, overlap: float, seed: int, measured: "Measured", artifact: str
) -> list[FedFishToyRow]:
    """Lay out the errors of one federation.

    Args:
        benchmark: its name.
        grid: what was measured.
        overlap: of the clients' intervals.
        seed: the seed.
        measured: its errors.
        artifact: key of the artifact that holds them.

    Returns:
        A row for every number of local epochs and every method.
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
