"""MaTS: the linear system of Kronecker-factored Fishers, solved by conjugate gradients."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.second_moments import scale_off_diagonal
from fedfisher_core.methods.shared.selection import Fractions, keep_best, tries_several
from fedfisher_core.methods.shared.task_vectors import with_mean_statistics
from fedfisher_core.methods.solvers.exact import conjugate_gradients
from fedfisher_core.methods.solvers.quadratic import kronecker_quadratic
from fedfisher_core.models.spec import Parameters


@method(
    "mats",
    uploads=(Weights, KFAC),
    sees_each=(),
    reference="https://arxiv.org/abs/2312.04339",
    validates=tries_several("off_diagonal"),
)
def mats(
    server: Server,
    uploads: Sequence[Upload],
    *,
    steps: Annotated[PositiveInt, Field(description="most steps, for each layer")] = 100,
    tolerance: Annotated[
        PositiveFloat, Field(description="a layer stops when its residual has fallen by this factor")
    ] = 1e-5,
    off_diagonal: Annotated[
        Fractions, Field(description="lambda on the off-diagonal entries of A_i and G_i; of several, the best is kept")
    ] = (1.0,),
) -> Aggregate:
    """Solve sum_i G_i W A_i = sum_i G_i W_i A_i for every layer (Tam, Bansal and Raffel 2024, blockwise Fisher).

    Every client counts the same, as in the authors' repository (r-three/mats,
    `src/merging/conjugateGradient_fisherMerging.py`). FedFisher (K-FAC) minimises the same objective with p_i and
    damping. Conjugate gradients start at the plain mean of the clients; the authors' commands start at a saved sum of
    scaled changes. Their last layer is averaged, as its factor is too large to keep; here it is solved for like all
    others. A bias is the weight of an input that is always 1; the authors' networks have none. They take the empirical
    Fisher by default, and the setting `fisher.estimator` chooses it here. Their residual has to fall to a fraction of
    the right-hand side, ours to one of the first residual. Running statistics, which are measured rather than learnt,
    become their mean.

    Without damping the solution depends on rounding. In single precision, in which it is computed, LeNet's weights are
    11 to 12 % of their norm off those of double precision, and accuracy up to 0.7 percentage points
    (reports/precision.txt).
    """

    models = [upload[Weights].tensors for upload in uploads]
    equal = [1 / len(uploads)] * len(uploads)

    def merge(factor: float) -> Parameters:
        quadratic = kronecker_quadratic(
            models,
            [{layer: _shrink(one, factor) for layer, one in upload[KFAC].factors.items()} for upload in uploads],
            equal,
        )
        solution = conjugate_gradients(quadratic, steps=steps, tolerance=tolerance, check_every=steps).parameters
        return with_mean_statistics(server, solution, models, equal)

    return keep_best(server, off_diagonal, merge, name="off_diagonal")


def _shrink(factors: Kronecker, factor: float) -> Kronecker:
    return Kronecker(scale_off_diagonal(factors.inputs, factor), scale_off_diagonal(factors.outputs, factor))
