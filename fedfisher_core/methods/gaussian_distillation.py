"""Gaussian distillation: FedFisher(K-FAC), then what each client's network says of normal inputs like its own.

A server would like to minimise sum_i p_i E KL(f_i(x_i) || f(x_i)) over the inputs x_i of client i: where its network
f_i was trained, the global one should say the same. To second order in w - w_i this is FedFisher's objective, half of
sum_i p_i (w - w_i)^T F_i (w - w_i) with F_i the Fisher at w_i (FedFisher, section 3). Clients that hold different
classes are far apart, and there the expansion fails: their output factors have few directions of any size, so that
the quadratic is flat where the divergence is not. The divergence itself needs only inputs. Here they are normal,
with the mean, the leading directions and the variances of the client's own, so that its network is asked where its data
was.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.distillation.distilling import LearningRate, Samples, Steps, distilled
from fedfisher_core.methods.distillation.pseudo_inputs import Likeness, gaussian, reduced
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.methods.shared.fedfisher import (
    ConjugateGradients,
    FactoredDamping,
    KroneckerSolver,
    kronecker_objective,
    solver_validates,
)

DEFAULT_SOLVER = ConjugateGradients()


@method(
    "gaussian_distillation",
    uploads=(Weights, KFAC, InputMoments),
    reference="https://arxiv.org/abs/2403.12329",
    validates=lambda settings: settings.start != "mean" and solver_validates(settings),
    merges=False,
)
def gaussian_distillation(
    server: Server,
    uploads: Sequence[Upload],
    *,
    start: Annotated[
        Literal["fedfisher_kfac", "mean"], Field(description="where it starts: FedFisher's solution, or the mean")
    ] = "fedfisher_kfac",
    solver: KroneckerSolver = DEFAULT_SOLVER,
    factored_damping: FactoredDamping = 0.0,
    inputs: Annotated[
        Likeness, Field(description="what the drawn ones share with a client's: directions, variances or power")
    ] = "directions",
    steps: Steps = 300,
    samples: Samples = 64,
    learning_rate: LearningRate = 1e-3,
) -> Aggregate:
    """Minimise sum_i p_i E KL(f_i(x_i) || f(x_i)), x_i ~ N(mu_i, Sigma_i), from the solution of FedFisher(K-FAC).

    It looks at no image and trains no generator. The defaults, and the number of directions that `InputMoments` sends,
    were chosen on validation images of three federations of seed 100, which no report shows, with uncompressed uploads.
    Other values of `start` and `inputs` leave out one part each, to show what it is for.

    Args:
        solver: how FedFisher's objective is minimised, where that is the start.
        factored_damping: of this objective, see `kronecker_objective`.
        inputs: see `reduced`.

    Returns:
        The network after the last step, with the divergence on its inputs.
    """
    if start == "mean":
        begun = mean_parameters(uploads)
    else:
        begun = solver.minimise(kronecker_objective(uploads, factored_damping=factored_damping), server).parameters
    shape = server.spec.inputs.shape
    draws = [gaussian(reduced(upload[InputMoments], inputs), shape) for upload in uploads]
    return distilled(server, uploads, begun, draws, steps=steps, samples=samples, learning_rate=learning_rate)
